"""The engine: one thread that owns a Qwen2-architecture model and runs its sequences."""
