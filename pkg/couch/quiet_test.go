package couch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

func TestFeedsThatOnlyBeat(t *testing.T) {
	t.Parallel()
	beating := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"results":[`+"\n")
		for i := range 5 {
			for range 4 {
				time.Sleep(time.Minute)
				_, _ = io.WriteString(w, "\n")
				flush(w)
			}
			fmt.Fprintf(w, `{"seq":"1-x","id":"d%d","changes":[{"rev":"1-a"}]},`, i)
			flush(w)
		}
		for r.Context().Err() == nil {
			time.Sleep(10 * time.Second)
			_, _ = io.WriteString(w, "\n")
			flush(w)
		}
	}
	once := func(c *couch.Config) { c.Retries = 0 }
	testkit.RunBubble(t, "too long", func(t *testing.T) {
		began := time.Now()
		db := piped(t, beating, once)
		rows, err := rowsUntil(t, db, couch.ChangesOptions{Heartbeat: time.Minute, Patience: 5 * time.Minute})
		require.Len(t, rows, 5)
		require.ErrorIs(t, err, couch.ErrStalled)
		require.ErrorContains(t, err, "nothing but heartbeats for 5m0s")
		require.LessOrEqual(t, time.Since(began), 26*time.Minute)
	})
	testkit.RunBubble(t, "as long as it likes", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		feed, err := piped(t, beating, once).Changes(ctx, couch.ChangesOptions{Heartbeat: time.Minute})
		require.NoError(t, err)
		defer feed.Close()
		for err == nil {
			_, err = feed.Next()
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	testkit.RunBubble(t, "a caller may take its time", func(t *testing.T) {
		feed, err := piped(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"results":[`+"\n\n")
			for i := range 3 {
				time.Sleep(time.Second)
				fmt.Fprintf(w, "\n"+`{"seq":"1-x","id":"d%d","changes":[{"rev":"1-a"}]},`+"\n", i)
				flush(w)
			}
			_, _ = io.WriteString(w, `{"seq":"1-x","id":"d","changes":[{"rev":"1-a"}]}],"last_seq":"1-x"}`)
		}, once).Changes(t.Context(), couch.ChangesOptions{Patience: time.Minute})
		require.NoError(t, err)
		for err == nil {
			time.Sleep(time.Hour)
			_, err = feed.Next()
		}
		require.Equal(t, io.EOF, err)
	})
}

func TestWhiteSpaceWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, feed := range []couch.Feed{couch.FeedNormal, couch.FeedContinuous} {
		prefix := map[couch.Feed]string{couch.FeedNormal: `{"results":[`}[feed]
		_, err := rowsUntil(t, serving(t, endless(prefix, "\n"), noRetries), couch.ChangesOptions{Feed: feed})
		require.ErrorIs(t, err, couch.ErrMalformed)
		require.ErrorContains(t, err, "white space without end")
	}
	// Heartbeats over months are not a flood.
	synctest.Test(t, func(t *testing.T) {
		beats := strings.Repeat("\n", 1000)
		db := piped(t, func(w http.ResponseWriter, _ *http.Request) {
			for range 3000 {
				time.Sleep(10 * time.Second)
				_, _ = io.WriteString(w, beats)
				flush(w)
			}
			_, _ = io.WriteString(w, `{"last_seq":7}`)
		}, noRetries)
		_, err := db.Changes(t.Context(), couch.ChangesOptions{})
		require.NoError(t, err)
		feed, err := db.Changes(t.Context(), couch.ChangesOptions{Feed: couch.FeedContinuous, Heartbeat: time.Minute})
		require.NoError(t, err)
		_, err = feed.Next()
		require.Equal(t, io.EOF, err)
	})
}

func TestNumbersThatGoBack(t *testing.T) {
	t.Parallel()
	row := func(seq string) string { return `{"seq":` + seq + `,"id":"d","changes":[{"rev":"1-a"}]}` }
	for _, test := range []struct {
		seqs []string
		says string
	}{
		{[]string{"1", "2", "2", "7"}, ""},
		{[]string{"1", "3", "2"}, "sequence 2 comes after 3"},
		{[]string{`"3-a"`, `"1-b"`}, ""},
		{[]string{`[3,"a"]`, `[1,"b"]`}, ""},
		{[]string{"3", "null", "1"}, "sequence 1 comes after 3"},
		{[]string{"3.5", "1e0", "99999999999999999999", "4"}, ""},
	} {
		var rows []string
		for _, seq := range test.seqs {
			rows = append(rows, row(seq))
		}
		for feed, body := range map[couch.Feed]string{
			couch.FeedNormal:     `{"results":[` + strings.Join(rows, ",") + `],"last_seq":9}`,
			couch.FeedContinuous: strings.Join(rows, "\n") + "\n" + `{"last_seq":9}`,
		} {
			got, err := rowsUntil(t, saying(t, "application/json", body), couch.ChangesOptions{Feed: feed})
			if test.says == "" {
				require.Equal(t, io.EOF, err)
				require.Len(t, got, len(rows))
				continue
			}
			require.ErrorIs(t, err, couch.ErrMalformed)
			require.ErrorContains(t, err, test.says)
			require.Len(t, got, len(rows)-1)
		}
	}
}

func TestMultipartWithoutItsBoundary(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "\r\n", strings.Repeat("x", 100_000), strings.Repeat("x\r\n", 100_000), "--other\r\n\r\n{}\r\n--other--"} {
		_, err := leavesUntil(t, saying(t, mixedType, body), "x")
		require.ErrorIs(t, err, couch.ErrMalformed)
		require.ErrorContains(t, err, "boundary")
		require.ErrorContains(t, err, "GET http://")
	}
	_, err := leavesUntil(t, serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mixedType)
		for {
			if _, err := w.Write([]byte("x\r\n")); err != nil {
				return
			}
		}
	}), "x")
	require.ErrorContains(t, err, "a multipart body without its boundary")
}

// TestLarge tests documents that need room before they are held.
func TestLarge(t *testing.T) {
	t.Parallel()
	full := errors.New("no room")
	filler := strings.Repeat("x", 3<<20)
	type key struct{}
	for _, size := range []int{1 << 10, 900 << 10, 3 << 20} {
		for _, answer := range []error{nil, full} {
			calls := 0
			config := func(c *couch.Config) {
				c.Large = func(ctx context.Context) error {
					calls++
					require.Equal(t, "mine", ctx.Value(key{}))
					return answer
				}
			}
			ctx := context.WithValue(t.Context(), key{}, "mine")
			doc := `{"_id":"x","_rev":"1-a","f":"` + filler[:size] + `"}`
			read := map[string]func() error{
				"bulk": func() error {
					results, err := saying(t, "application/json", `{"results":[{"id":"x","docs":[{"ok":`+doc+`}]}]}`, config).BulkGet(ctx, []couch.DocRef{{ID: "x", Rev: "1-a"}})
					require.NoError(t, err)
					defer results.Close()
					_, err = results.Next()
					return err
				},
				"JSON": func() error {
					return firstLeaf(ctx, t, serving(t, func(w http.ResponseWriter, _ *http.Request) {
						_, _ = io.WriteString(w, `[{"ok":`+doc+`}]`)
					}, config))
				},
				"multipart": func() error {
					return firstLeaf(ctx, t, saying(t, mixedType, "--out\r\nContent-Type: application/json\r\n\r\n"+doc+"\r\n--out--", config))
				},
			}
			for name, read := range read {
				calls = 0
				err := read()
				if size <= 1<<20 {
					require.Zero(t, calls, name)
					require.NoError(t, err)
					continue
				}
				require.Equal(t, 1, calls, name)
				require.ErrorIs(t, err, answer)
			}
		}
	}
}

// Only the reader of a large document holds it, not one that waits for the next document.
func TestLargeIsNotHeldAfterwards(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"results":[{"id":"x","docs":[{"ok":{"_id":"x","_rev":"1-a","f":"`+strings.Repeat("x", 3<<20)+`"}}]},`)
			flush(w)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		results, err := db.BulkGet(ctx, []couch.DocRef{{ID: "x", Rev: "1-a"}, {ID: "y", Rev: "1-a"}})
		require.NoError(t, err)
		first := func() weak.Pointer[byte] {
			f, err := results.Next()
			require.NoError(t, err)
			return weak.Make(&f.Doc.Body[0])
		}()
		ended := make(chan error, 1)
		go func() {
			_, err := results.Next()
			ended <- err
		}()
		synctest.Wait()
		runtime.GC()
		require.Nil(t, first.Value())
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, results.Close())
	})
}

func firstLeaf(ctx context.Context, t *testing.T, db *couch.Database) error {
	leaves, err := db.OpenRevs(ctx, "x", "1-a", nil)
	require.NoError(t, err)
	defer leaves.Close()
	_, err = leaves.Next()
	return err
}

func TestPossibleAncestorsAreBounded(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`"1-a",`, 1000) + `"1-b"`
	missing, err := saying(t, "application/json", `{"x":{"missing":["9-a"],"possible_ancestors":[`+many+`]}}`).
		RevsDiff(t.Context(), []couch.DocRevs{{ID: "x", Revs: []string{"9-a"}}})
	require.NoError(t, err)
	require.Len(t, missing[0].PossibleAncestors, 100)
}
