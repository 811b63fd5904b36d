"""Delta tables by ``format("penstock")``, in Spark's own Python workers."""
