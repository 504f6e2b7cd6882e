"""Training of what a model is served with: adapters and drafters."""
