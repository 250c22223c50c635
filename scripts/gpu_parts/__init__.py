"""Parts of `scripts/gpu-check` that measure more than the engine by itself."""
