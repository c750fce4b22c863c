package lease

// mutable reports whether a machine can have a mutation. The patches in mutation_test.go change this file.
const mutable = false

func (m *Machine) mutate(mutation) {}

func (m *Machine) mutated() mutation { return sound }
