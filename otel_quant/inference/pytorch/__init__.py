"""PyTorch models at work: ``measure.py`` runs them in turn, the other files look at one of them."""
