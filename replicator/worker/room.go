package worker

import "context"

// largeAtATime is how many documents of more than a megabyte a run holds in memory at a time. Others wait,
// with their answers half read, and hold up nothing but what is behind them there.
const largeAtATime = 2

// room is the place in memory that one goroutine has for a large document, while it reads and writes it.
type room struct {
	r     *run
	taken bool
}

type roomKey struct{}

// withRoom gives the requests of ctx a place for one large document at a time. It is to be left.
func (r *run) withRoom(ctx context.Context) (context.Context, *room) {
	m := &room{r: r}
	return context.WithValue(ctx, roomKey{}, m), m
}

// enterRoom waits for the place of a large document. It is a couch.Config's.
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

// leave gives the place back. The document that had it is not needed any more.
func (m *room) leave() {
	if m.taken {
		m.taken = false
		<-m.r.large
	}
}
