"""What a quantized model has that was written: checked by headers, scales and zero points, against its configuration."""
