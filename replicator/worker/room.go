package worker

import "context"

// largeAtATime is the number of documents of more than a megabyte that a run holds in memory. Other goroutines wait
// with their answers half read, and delay only the rest of those answers.
const largeAtATime = 2

// room is the permission of one goroutine to hold a large document in memory.
type room struct {
	r     *run
	taken bool
}

type roomKey struct{}

// withRoom returns a context whose requests may hold one large document at a time. The caller must call leave.
func (r *run) withRoom(ctx context.Context) (context.Context, *room) {
	m := &room{r: r}
	return context.WithValue(ctx, roomKey{}, m), m
}

// enterRoom waits for room for a large document. It is a couch.Config.Large.
func enterRoom(ctx context.Context) error {
	m, ok := ctx.Value(roomKey{}).(*room)
	if !ok || m.taken {
		return nil
	}
	select {
	case m.r.large <- struct{}{}:
		m.taken = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave releases the room. The large document must not be used afterwards.
func (m *room) leave() {
	if m.taken {
		m.taken = false
		<-m.r.large
	}
}
