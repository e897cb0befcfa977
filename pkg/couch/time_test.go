package couch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

const dbInfo = `{"db_name":"db","update_seq":"5-x","instance_start_time":"0","doc_count":1,"doc_del_count":0}`

// soon requires that something took the given time, or up to a quarter longer because of jitter.
func soon(t *testing.T, want, took time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, took, want)
	require.LessOrEqual(t, took, want+want/4+time.Millisecond)
}

// flush sends the bytes written so far.
func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

func TestRetriesDoubleTheirWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			at = append(at, time.Since(start))
			http.Error(w, `{"error":"internal","reason":"busy"}`, http.StatusServiceUnavailable)
		})
		_, err := db.Info(t.Context())
		require.ErrorContains(t, err, "503 internal: busy")
		ms := time.Millisecond
		for try, after := range []time.Duration{0, 250 * ms, 750 * ms, 1750 * ms, 3750 * ms, 7750 * ms} {
			soon(t, after, at[try])
		}
		require.Len(t, at, 6)
	})
}

// Retrying shows at each moment which requests are in trouble, and each end is reported once.
func TestRetriesAreToldOf(t *testing.T) {
	t.Parallel()
	type told struct {
		open     int // number not over yet
		attempt  int
		attempts int
		wait     time.Duration
		cause    string
	}
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		answers []int
		pause   string // Retry-After of the last failure
		end     time.Duration
		want    []told
	}{
		"it succeeds": {
			answers: []int{503, 429, 200}, pause: "7", end: 7250 * ms,
			want: []told{{1, 2, 6, 250 * ms, "503 internal: busy"}, {2, 3, 0, 7000 * ms, "429 internal: busy"}},
		},
		"it fails for good": {
			answers: []int{503, 404}, end: 250 * ms,
			want: []told{{1, 2, 6, 250 * ms, "503 internal: busy"}},
		},
		"it was not to be repeated": {answers: []int{404}},
		"it was asked to wait too long": {answers: []int{503, 503}, pause: "3600", end: 250 * ms, want: []told{
			{1, 2, 6, 250 * ms, "503 internal: busy"},
		}},
		"its caller gave up": {answers: []int{503, 503, 0}, end: time.Second, want: []told{
			{1, 2, 6, 250 * ms, "503 internal: busy"},
			{2, 3, 6, 500 * ms, "503 internal: busy"},
		}},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			start := time.Now()
			var seen []told
			open := 0
			type key struct{}
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				status := test.answers[0]
				test.answers = test.answers[1:]
				switch {
				case status == 0:
					<-r.Context().Done()
					return
				case status == 200:
					_, _ = io.WriteString(w, dbInfo)
					return
				case test.pause != "" && len(test.answers) < 2 && status != 404 && len(seen) > 0:
					w.Header().Set("Retry-After", test.pause)
				}
				http.Error(w, `{"error":"internal","reason":"busy"}`, status)
			}, func(cfg *couch.Config) {
				cfg.Retrying = func(ctx context.Context, r couch.Retry) func() {
					require.Equal(t, 1, ctx.Value(key{}))
					require.Equal(t, start, r.Since)
					i := len(seen)
					require.Less(t, i, len(test.want))
					soon(t, test.want[i].wait, time.Until(r.Until))
					open++
					seen = append(seen, told{open, r.Attempt, r.Attempts, test.want[i].wait, r.Err.Cause()})
					return func() { open-- }
				}
			})
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, 1), 10*time.Second)
			defer cancel()
			if name == "its caller gave up" {
				time.AfterFunc(time.Second, cancel)
			}
			_, _ = db.Info(ctx)
			require.Equal(t, test.want, seen)
			require.Zero(t, open)
			soon(t, test.end, time.Since(start))
		})
	}
}

func TestRetriesSucceed(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]http.HandlerFunc{
		"closed": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"torn": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"db_name"`)
			flush(w)
			panic(http.ErrAbortHandler)
		},
		"timeout": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusRequestTimeout) },
		"silent":  func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			var tries atomic.Int32
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				if tries.Add(1) < 3 {
					failure(w, r)
					return
				}
				_, _ = io.WriteString(w, dbInfo)
			})
			info, err := db.Info(t.Context())
			require.NoError(t, err)
			require.Equal(t, `"5-x"`, string(info.UpdateSeq))
			require.EqualValues(t, 3, tries.Load())
		})
	}
}

func TestNotRetried(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 405, 409, 412, 413, 415, 501} {
		testkit.RunBubble(t, http.StatusText(status), func(t *testing.T) {
			var tries atomic.Int32
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				tries.Add(1)
				w.WriteHeader(status)
			})
			_, err := db.Info(t.Context())
			require.ErrorContains(t, err, http.StatusText(status))
			require.EqualValues(t, 1, tries.Load())
		})
	}
	testkit.RunBubble(t, "creation", func(t *testing.T) {
		var tries atomic.Int32
		db := piped(t, func(http.ResponseWriter, *http.Request) {
			tries.Add(1)
			panic(http.ErrAbortHandler)
		})
		require.Error(t, db.Create(t.Context(), nil))
		require.EqualValues(t, 1, tries.Load())
	})
}

func TestRetryAfter(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		start := time.Now()
		header := "7"
		tries := 0
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			if tries++; tries%2 == 1 {
				w.Header().Set("Retry-After", header)
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			_, _ = io.WriteString(w, dbInfo)
		})
		_, err := db.Info(t.Context())
		require.NoError(t, err)
		soon(t, 7*time.Second, time.Since(start))

		time.Sleep(time.Until(start.Add(10 * time.Second)))
		header = time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)
		_, err = db.Info(t.Context())
		require.NoError(t, err)
		soon(t, 30*time.Second, time.Since(start))

		// Longer than a request waits: its caller gets the error.
		header, start = "3600", time.Now()
		_, err = db.Info(t.Context())
		require.ErrorIs(t, err, couch.ErrTooManyRequests)
		var e *couch.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, time.Hour, e.RetryAfter)
		require.Less(t, time.Since(start), time.Second)
	})
}

func TestContextEndsAWait(t *testing.T) {
	t.Parallel()
	cause := errors.New("the job was cancelled")
	for name, handler := range map[string]http.HandlerFunc{
		"between tries": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "50")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"for an answer": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"for a body": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{")
			flush(w)
			<-r.Context().Done()
		},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			start := time.Now()
			db := piped(t, handler)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(cause) })
			_, err := db.Info(ctx)
			require.ErrorIs(t, err, cause)
			require.ErrorContains(t, err, "GET http://couch.example/db: the job was cancelled")
			require.Equal(t, 3*time.Second, time.Since(start))
			_, err = db.Info(ctx)
			require.ErrorIs(t, err, cause)
		})
	}
}

func TestStalls(t *testing.T) {
	t.Parallel()
	once := func(c *couch.Config) { c.Retries, c.ConnectionTimeout = 0, 10*time.Second }
	for name, handler := range map[string]http.HandlerFunc{
		"before the answer": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"in the body": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, dbInfo[:10])
			flush(w)
			<-r.Context().Done()
		},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			start := time.Now()
			_, err := piped(t, handler, once).Info(t.Context())
			require.ErrorIs(t, err, couch.ErrStalled)
			require.ErrorContains(t, err, "nothing moved for 10s")
			require.Equal(t, 10*time.Second, time.Since(start))
		})
	}
	testkit.RunBubble(t, "while the server takes nothing", func(t *testing.T) {
		start := time.Now()
		over := make(chan struct{})
		defer close(over)
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 100_000))
			<-over
		}, once)
		body := `{"_id":"x","_rev":"1-a","v":"` + strings.Repeat("x", 3<<20) + `"}`
		_, err := db.BulkDocs(t.Context(), []couch.Document{document(t, body)})
		require.ErrorIs(t, err, couch.ErrStalled)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
	testkit.RunBubble(t, "slow but steady", func(t *testing.T) {
		start := time.Now()
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			for range 100 {
				time.Sleep(5 * time.Second)
				_, _ = io.WriteString(w, strings.Repeat(" ", 600))
				flush(w)
			}
			_, _ = io.WriteString(w, dbInfo)
		}, once)
		_, err := db.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, 500*time.Second, time.Since(start))
	})
	testkit.RunBubble(t, "slow error", func(t *testing.T) {
		start := time.Now()
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				flush(w)
				time.Sleep(time.Second)
			}
		}, once)
		_, err := db.Info(t.Context())
		require.ErrorIs(t, err, couch.ErrNotFound)
		require.LessOrEqual(t, time.Since(start), 12*time.Second)
	})
	testkit.RunBubble(t, "a feed that goes on after its end", func(t *testing.T) {
		start := time.Now()
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"results":[],"last_seq":5}`)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "\n")
				flush(w)
				time.Sleep(500 * time.Millisecond)
			}
		}, once)
		_, feed := allRows(t, db, couch.ChangesOptions{})
		require.Equal(t, "5", string(feed.LastSeq()))
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
	})
	testkit.RunBubble(t, "a caller may take its time", func(t *testing.T) {
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `{"results":[`)
			for i := range 1000 {
				fmt.Fprintf(w, `{"seq":%d,"id":"%d","changes":[{"rev":"1-a"}]},`+"\n", i, i)
			}
			fmt.Fprint(w, `{"seq":1000,"id":"z","changes":[{"rev":"1-a"}]}],"last_seq":1000}`)
		}, once)
		feed, err := db.Changes(t.Context(), couch.ChangesOptions{})
		require.NoError(t, err)
		n := 0
		for err == nil {
			time.Sleep(time.Minute)
			_, err = feed.Next()
			n++
		}
		require.Equal(t, io.EOF, err)
		require.Equal(t, 1002, n)
	})
	testkit.RunBubble(t, "a source may take its time", func(t *testing.T) {
		var got int64
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			got, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"ok":true}`)
		}, once)
		doc, _ := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", []byte("xxxxxxxxxx")))
		about, err := doc.Attachments()
		require.NoError(t, err)
		source := &slow{about: about[0]}
		require.NoError(t, db.PutMultipart(t.Context(), doc, source))
		require.Greater(t, got, int64(len(doc.Body)))
	})
}

// slow is a source of one attachment of ten bytes, one byte per minute.
type slow struct {
	about couch.Attachment
	n     int
}

func (s *slow) NextAttachment() (*couch.AttachmentReader, error) {
	return couch.NewAttachmentReader(s.about, s), nil
}

func (s *slow) Read(p []byte) (int, error) {
	if s.n++; s.n > 10 {
		return 0, io.EOF
	}
	time.Sleep(time.Minute)
	return copy(p, "x"), nil
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	const beat = 2 * time.Second
	beating := func(beats int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for range beats {
				time.Sleep(beat)
				_, _ = io.WriteString(w, "\n")
				flush(w)
			}
			_, _ = io.WriteString(w, `{"seq":1,"id":"x","changes":[{"rev":"1-a"}]}`+"\n")
			flush(w)
			<-r.Context().Done()
		}
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		db := piped(t, beating(1000))
		feed, err := db.Changes(t.Context(), couch.ChangesOptions{Feed: couch.FeedContinuous, Heartbeat: beat})
		require.NoError(t, err)
		defer feed.Close()
		row, err := feed.Next()
		require.NoError(t, err)
		require.Equal(t, "x", row.ID)
		require.Equal(t, 2000*time.Second, time.Since(start))
		// Then the server falls silent.
		_, err = feed.Next()
		require.ErrorIs(t, err, couch.ErrStalled)
		require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, 2006*time.Second, time.Since(start))
		_, again := feed.Next()
		require.Equal(t, err, again)
	})
}

func TestFeedsWithoutHeartbeat(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options couch.ChangesOptions
		silence time.Duration
	}{
		{couch.ChangesOptions{}, 30 * time.Second},
		{couch.ChangesOptions{Heartbeat: time.Minute}, 3 * time.Minute},
		{couch.ChangesOptions{Feed: couch.FeedContinuous}, 90 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			db := piped(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, noRetries)
			_, err := db.Changes(t.Context(), test.options)
			require.ErrorIs(t, err, couch.ErrStalled)
			require.Equal(t, test.silence, time.Since(start))
		})
	}
}

// TestLostWrite loses the answer to a write of a checkpoint.
func TestLostWrite(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"own write": false, "another's": true} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			stored := ""
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet:
					_, _ = io.WriteString(w, stored)
				case stored == "":
					stored = `{"_id":"_local/x","_rev":"0-4","seq":5,"n":1,"s":"ü"}`
					if other {
						stored = `{"_id":"_local/x","_rev":"0-4","seq":6}`
					}
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(http.StatusConflict)
					_, _ = io.WriteString(w, `{"error":"conflict","reason":"Document update conflict."}`)
				}
			})
			rev, err := db.PutLocal(t.Context(), "x", raw(`{"_rev":"0-3","s":"\u00fc","seq":5.0,"n":1}`))
			if other {
				require.ErrorIs(t, err, couch.ErrConflict)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "0-4", rev)
		})
	}
}

func TestMaxConnections(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var now, most atomic.Int32
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/_changes") {
				flush(w)
				<-r.Context().Done()
				return
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			_, _ = io.WriteString(w, dbInfo)
		}, func(c *couch.Config) { c.MaxConnections = 3 })
		feed, err := db.Changes(t.Context(), couch.ChangesOptions{Feed: couch.FeedContinuous}) // does not use a slot
		require.NoError(t, err)
		defer feed.Close()
		start := time.Now()
		done := make(chan error)
		for range 30 {
			go func() {
				_, err := db.Info(t.Context())
				done <- err
			}()
		}
		for range 30 {
			require.NoError(t, <-done)
		}
		require.EqualValues(t, 3, most.Load())
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}
