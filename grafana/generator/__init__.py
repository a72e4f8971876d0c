"""Makes the dashboards: `scripts/docs.py` writes grafana/dashboards/*.json.

`names` turns the telemetry contract into what each store calls it, `panels` holds what all
dashboards share, and each other module is one dashboard.
"""
