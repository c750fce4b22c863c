//go:build sim

// simulated.go declares functions whose bodies are the runtime's: the compiler takes that if there is assembly.
