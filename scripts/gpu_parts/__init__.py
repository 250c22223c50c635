"""Parts of `scripts/gpu-check`: the steps, and the code that runs and reports them."""
