"""Pre-training and fine-tuning of small models."""
