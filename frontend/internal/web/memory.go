package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/budget"
)

const (
	// DefaultMemory is the number of bytes that connections and requests may use, if the node does not say.
	DefaultMemory = 256 << 20
	// connectionCost is the number of bytes that a connection takes: its buffers, the headers of a request that may be
	// arriving, and the stacks of its goroutines. It includes a request of which no large part is in memory.
	connectionCost = 32 << 10
	// memoryPatience is how long a request waits for memory or for disk space.
	memoryPatience = 5 * time.Second
	// stallGrace is how long a client may keep a request waiting before its connection makes room for the memory of others.
	stallGrace = time.Second / 2
)

// memoryLimit returns the number of bytes that requests may take: what connections leave.
func (c *Connections) memoryLimit() int64 {
	return c.bytes - min(c.opened.Load()*connectionCost, c.bytes/2)
}

// requestOf returns what is known of a request that is being answered, nil in a test without connections.
func requestOf(r *http.Request) *connectedRequest { return requestIn(r.Context()) }

func requestIn(ctx context.Context) *connectedRequest {
	request, _ := ctx.Value(requestKey{}).(*connectedRequest)
	return request
}

// stall records that a request waits for its client, if it has taken memory or disk space. The caller calls done when it
// goes on.
func (r *connectedRequest) stall() (done func()) {
	if r == nil || r.memory.Held() == 0 && r.disk.Held() == 0 {
		return func() {}
	}
	r.memory.Stall()
	r.disk.Stall()
	return func() {
		r.memory.Resume()
		r.disk.Resume()
	}
}

// giveWay closes the connection of a request whose client keeps it waiting while others need its memory.
func (c *Connections) giveWay(r *connectedRequest) {
	var room room
	c.mu.Lock()
	if c.open[r.conn.Conn] == r.conn {
		c.evict(r.conn, &room)
	}
	c.mu.Unlock()
	c.log.Info().Str("network", r.network).Int64("bytes", r.memory.Held()).Int64("spooled", r.disk.Held()).
		Msg("closing a connection that stalls: other requests need its memory")
	room.make()
}

// Memory is what one request has taken of the memory of the node, or of its disk space for bodies. The zero value is for
// requests without connections, which tests have: it takes anything.
type Memory struct {
	account *budget.Account
	reason  string // of the failure
}

// MemoryOf returns the account of a request for memory.
func MemoryOf(r *http.Request) Memory { return memoryIn(r.Context()) }

func memoryIn(ctx context.Context) Memory {
	if request := requestIn(ctx); request != nil {
		return Memory{request.memory, "this node has too little memory for the request now: try again later"}
	}
	return Memory{}
}

// SpoolOf returns the account of a request for disk space.
func SpoolOf(r *http.Request) Memory {
	if request := requestOf(r); request != nil {
		return Memory{request.disk, "this node has too little disk space for the body of the request now: try again later"}
	}
	return Memory{}
}

// Take takes bytes of a share of the budget before they are used. It waits for a few seconds until other requests give back what is missing. The
// error is a [Failure] with the status 503, or the error of ctx. What is not given back is held until the request ends or
// waits for an event.
func (m Memory) Take(ctx context.Context, bytes int64, share budget.Share) error {
	err := m.account.Take(ctx, bytes, share)
	if errors.Is(err, budget.ErrExhausted) {
		return Busy(m.reason)
	}
	return err
}

// TryTake takes bytes if it need not wait for them.
func (m Memory) TryTake(bytes int64) bool { return m.account.TryTake(bytes) }

// Give gives bytes back.
func (m Memory) Give(bytes int64) { m.account.Give(bytes) }

// ReserveMemory takes memory for a request, whose context is ctx, until release is called.
func ReserveMemory(ctx context.Context, bytes int64) (release func(), err error) {
	memory := memoryIn(ctx)
	if err := memory.Take(ctx, bytes, budget.Most); err != nil {
		return nil, err
	}
	return func() { memory.Give(bytes) }, nil
}

// GiveBack gives back all the memory of a request, which keeps little from then on.
func GiveBack(r *http.Request) {
	if request := requestOf(r); request != nil {
		request.memory.Give(request.memory.Held())
	}
}

const (
	// freeBody is the size of a body that the cost of a connection includes, in bytes.
	freeBody = 4 << 10
	// smallBody is the length up to which a body may use all of the memory, so that usual writes do not wait behind large
	// ones.
	smallBody = 64 << 10
	// bodyCost is the number of bytes that one byte of a body in memory costs: it is copied while the buffer grows, and is
	// parsed.
	bodyCost = 4
)

// BodyShare returns how much of the memory a body of a length in bytes may use. A negative length is unknown.
func BodyShare(length int64) budget.Share {
	if length >= 0 && length <= smallBody {
		return budget.All
	}
	return budget.Most
}

// readAll reads a body into memory, and takes memory while the body arrives.
func readAll(r *http.Request, from io.Reader) ([]byte, error) {
	memory := MemoryOf(r)
	// The beginning of a large body leaves to others what the whole body will leave to them.
	declared := BodyShare(r.ContentLength)
	text := make([]byte, 0, 512)
	for {
		n, err := from.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return text, err
		}
		if len(text) < cap(text) {
			continue
		}
		larger := 2 * cap(text)
		if larger > freeBody {
			share := max(declared, BodyShare(int64(larger))) // Most is the larger one
			if err := memory.Take(r.Context(), int64(larger-max(cap(text), freeBody))*bodyCost, share); err != nil {
				zerolog.Ctx(r.Context()).Info().Int("bytes", larger).Msg("there is no memory for a request body")
				return text, err
			}
		}
		text = append(make([]byte, 0, larger), text...)
	}
}
