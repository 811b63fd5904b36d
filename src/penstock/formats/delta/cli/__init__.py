"""Commands about Delta tables."""
