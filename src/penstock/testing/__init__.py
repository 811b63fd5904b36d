"""What tests of Penstock, and of adapters and formats for it, are made of."""
