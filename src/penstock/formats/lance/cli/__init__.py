"""Commands about Lance tables."""
