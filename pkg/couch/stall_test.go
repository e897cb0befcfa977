package couch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

// silence is a connection to a server that reads everything and sends nothing.
func silence(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }() // until the client closes its end
	return client, nil
}

// deafness is a connection to a server that reads nothing.
func deafness(context.Context, string, string) (net.Conn, error) {
	client, _ := net.Pipe()
	return client, nil
}

// never returns no connection for an hour. Its caller may have gone by then.
func never(context.Context, string, string) (net.Conn, error) {
	time.Sleep(time.Hour)
	return nil, net.ErrClosed
}

// The error of a stall names the step, and each step has its own limit.
func TestStallsAreNamedByTheirStep(t *testing.T) {
	t.Parallel()
	const connect, answer = 10 * time.Second, 25 * time.Second
	for name, test := range map[string]struct {
		url       string
		transport *http.Transport
		call      func(context.Context, *couch.Database) error
		took      time.Duration
		says      string
	}{
		"name": {
			transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				httptrace.ContextClientTrace(ctx).DNSStart(httptrace.DNSStartInfo{}) // like a net.Dialer
				return never(ctx, network, addr)
			}},
			took: connect,
			says: "GET http://couch.example/db: stalled while looking up the host's address: nothing moved for 10s",
		},
		"connection": {
			transport: &http.Transport{DialContext: never}, took: connect,
			says: "stalled while connecting: nothing moved for 10s",
		},
		"connection, by the transport's limit": {
			transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				time.Sleep(2 * time.Second)
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
			}},
			took: 2 * time.Second, says: "stalled while connecting: dial tcp: ",
		},
		"TLS": {
			url: "https://couch.example/db", took: connect,
			transport: &http.Transport{DialContext: silence, TLSHandshakeTimeout: time.Hour},
			says:      "GET https://couch.example/db: stalled in the TLS handshake: nothing moved for 10s",
		},
		"request": {
			transport: &http.Transport{DialContext: deafness}, took: connect,
			call: func(ctx context.Context, db *couch.Database) error {
				_, err := db.BulkDocs(ctx, []couch.Document{
					document(t, `{"_id":"x","_rev":"1-a","v":"`+strings.Repeat("x", 100_000)+`"}`),
				})
				return err
			},
			says: "stalled while sending the request: nothing moved for 10s",
		},
		"answer": {
			transport: &http.Transport{DialContext: silence}, took: answer,
			says: "stalled while waiting for the answer: nothing moved for 25s",
		},
		"answer of a write": {
			transport: &http.Transport{DialContext: silence}, took: answer,
			call: func(ctx context.Context, db *couch.Database) error {
				_, err := db.BulkDocs(ctx, []couch.Document{document(t, `{"_id":"x","_rev":"1-a"}`)})
				return err
			},
			says: "POST http://couch.example/db/_bulk_docs: stalled while waiting for the answer: nothing moved for 25s",
		},
		"a feed's connection": {
			transport: &http.Transport{DialContext: never}, took: connect,
			call: func(ctx context.Context, db *couch.Database) error {
				_, err := db.Changes(ctx, couch.ChangesOptions{Heartbeat: time.Minute})
				return err
			},
			says: "stalled while connecting: nothing moved for 10s",
		},
		"a feed's answer": {
			transport: &http.Transport{DialContext: silence}, took: 3 * time.Minute,
			call: func(ctx context.Context, db *couch.Database) error {
				_, err := db.Changes(ctx, couch.ChangesOptions{Heartbeat: time.Minute})
				return err
			},
			says: "stalled while waiting for the answer: nothing moved for 3m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := couch.DefaultConfig()
				cfg.URL, cfg.Transport, cfg.Retries = "http://couch.example/db", test.transport.Clone(), 0
				cfg.ConnectionTimeout, cfg.AnswerTimeout = connect, answer
				if test.url != "" {
					cfg.URL = test.url
				}
				db, err := couch.Open(cfg)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				start := time.Now()
				if test.call == nil {
					_, err = db.Info(ctx)
				} else {
					err = test.call(ctx, db)
				}
				require.ErrorIs(t, err, couch.ErrStalled)
				require.ErrorContains(t, err, test.says)
				require.Equal(t, test.took, time.Since(start))
				time.Sleep(3 * time.Hour) // until the transport gives up as well
			})
		})
	}
}

// A server that sends a little every second does not hold a request for ever.
func TestAnswersThatDripEnd(t *testing.T) {
	t.Parallel()
	drip := func(w http.ResponseWriter, r *http.Request, text string) {
		w.WriteHeader(http.StatusOK)
		for i := 0; r.Context().Err() == nil && i < len(text); i++ {
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, text[i:i+1])
			flush(w)
		}
	}
	row := `{"seq":1,"id":"` + strings.Repeat("x", 10_000) + `","changes":[{"rev":"1-a"}]}`
	for name, test := range map[string]struct {
		text string
		read func(context.Context, *couch.Database) error
	}{
		"a description": {dbInfo + strings.Repeat(" ", 10_000), func(ctx context.Context, db *couch.Database) error {
			_, err := db.Info(ctx)
			return err
		}},
		"a row of a feed": {`{"results":[` + "\n" + row, func(ctx context.Context, db *couch.Database) error {
			return nextOf(ctx, db, couch.ChangesOptions{Heartbeat: 10 * time.Second})
		}},
		"the beginning of a feed": {`{"last_seq":"` + strings.Repeat("x", 10_000), func(ctx context.Context, db *couch.Database) error {
			return nextOf(ctx, db, couch.ChangesOptions{Heartbeat: 10 * time.Second})
		}},
		"a row of a live feed": {"\n\n" + row, func(ctx context.Context, db *couch.Database) error {
			return nextOf(ctx, db, couch.ChangesOptions{Feed: couch.FeedContinuous, Heartbeat: 10 * time.Second})
		}},
		"blanks without heartbeats": {`{"results":[` + strings.Repeat("\n", 10_000), func(ctx context.Context, db *couch.Database) error {
			return nextOf(ctx, db, couch.ChangesOptions{})
		}},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			start, tries := time.Now(), 0
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				tries++
				drip(w, r, test.text)
			})
			err := test.read(t.Context(), db)
			require.ErrorIs(t, err, couch.ErrTooSlow)
			require.ErrorIs(t, err, couch.ErrStalled)
			require.ErrorContains(t, err, "stalled: too slow: 30 bytes in 30s")
			require.Equal(t, 1, tries, "it was repeated")
			require.InDelta(t, 150, time.Since(start).Seconds(), 30)
		})
	}
	t.Run("heartbeats", func(t *testing.T) {
		t.Parallel()
		for _, feed := range []couch.Feed{couch.FeedContinuous, couch.FeedNormal} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				db := piped(t, func(w http.ResponseWriter, r *http.Request) {
					if feed == couch.FeedNormal {
						_, _ = io.WriteString(w, `{"results":[`)
					}
					for i := range 100 {
						for range 100 {
							time.Sleep(5 * time.Second)
							_, _ = io.WriteString(w, "\n")
							flush(w)
						}
						if i > 0 && feed == couch.FeedNormal {
							_, _ = io.WriteString(w, ",")
						}
						fmt.Fprintf(w, `{"seq":%d,"id":"x","changes":[{"rev":"1-a"}]}`, i)
					}
					if feed == couch.FeedNormal {
						_, _ = io.WriteString(w, "]")
						flush(w)
						time.Sleep(5 * time.Second)
						_, _ = io.WriteString(w, `,"last_seq":99}`)
					} else {
						_, _ = io.WriteString(w, "\n"+`{"last_seq":99}`)
					}
				}, noRetries)
				rows, changes := allRows(t, db, couch.ChangesOptions{Feed: feed, Heartbeat: 5 * time.Second})
				require.Len(t, rows, 100)
				require.Equal(t, json.RawMessage("99"), changes.LastSeq())
				require.GreaterOrEqual(t, time.Since(start), 50_000*time.Second)
			})
		}
	})
}

func nextOf(ctx context.Context, db *couch.Database, o couch.ChangesOptions) error {
	feed, err := db.Changes(ctx, o)
	if err != nil {
		return err
	}
	defer feed.Close()
	_, err = feed.Next()
	return err
}
