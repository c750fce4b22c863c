package states

// Pile is a slice that grows without being copied, and shrinks from its beginning.
type Pile[T any] struct {
	chunks [][]T
	n      int
}

const chunk = 1 << 14

// Add appends an element.
func (p *Pile[T]) Add(v T) {
	if p.n == chunk*len(p.chunks) {
		p.chunks = append(p.chunks, make([]T, chunk))
	}
	p.chunks[p.n/chunk][p.n%chunk] = v
	p.n++
}

// At returns element i.
func (p *Pile[T]) At(i int) T { return p.chunks[i/chunk][i%chunk] }

// Take returns element i, and frees the memory of those before it.
func (p *Pile[T]) Take(i int) T {
	if i%chunk == 0 && i > 0 {
		p.chunks[i/chunk-1] = nil
	}
	return p.At(i)
}
