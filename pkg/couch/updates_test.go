package couch_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

// openServer opens a server whose retries do not slow down tests, unless edit changes that.
func openServer(t testing.TB, url string, edit ...func(*couch.Config)) *couch.Server {
	t.Helper()
	cfg := couch.DefaultConfig()
	cfg.URL, cfg.RetryBase = url, time.Millisecond
	for _, e := range edit {
		e(&cfg)
	}
	server, err := couch.OpenServer(cfg)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server
}

func as(username, password string) func(*couch.Config) {
	return func(c *couch.Config) { c.Username, c.Password = username, password }
}

// answering starts a server, and opens its root.
func answering(t *testing.T, handler http.HandlerFunc, edit ...func(*couch.Config)) *couch.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return openServer(t, server.URL, edit...)
}

func jsonAnswer(status int, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d X\r\nServer: CouchDB/3.5.0 (Erlang OTP/25)\r\nContent-Type: application/json\r\n"+
		"Connection: close\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// updatesUntil reads a feed until it ends or fails.
func updatesUntil(t testing.TB, server *couch.Server, o couch.UpdatesOptions) (rows []couch.Update, feed *couch.Updates, err error) {
	t.Helper()
	feed, err = server.Updates(t.Context(), o)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { feed.Close() })
	for {
		row, err := feed.Next()
		if err != nil {
			return rows, feed, err
		}
		rows = append(rows, row)
	}
}

func namesAndTypes(rows []couch.Update) []string {
	list := make([]string, len(rows))
	for i, row := range rows {
		list[i] = row.Type + " " + row.Database
	}
	return list
}

func TestServerURL(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"http://host": "http://host", "http://host/": "http://host", "https://host:1/a%20b/": "https://host:1/a%20b",
	} {
		require.Equal(t, want, openServer(t, given).URL())
	}
	for given, says := range map[string]string{
		"http://me:secret@host/": "server URL: has a user", "ftp://host/": "server URL: neither http nor https",
		"http://": "server URL: names no host", "http://host/?secret=1": "server URL: has a query",
	} {
		cfg := couch.DefaultConfig()
		cfg.URL = given
		_, err := couch.OpenServer(cfg)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "secret")
	}
	shown := openServer(t, "http://host/", as("me", "s3cret"))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		require.NotContains(t, fmt.Sprintf(verb, shown), "s3cret")
	}
	require.Equal(t, "server http://host", shown.String())
}

// A server and its databases have one session.
func TestServerSharesSessions(t *testing.T) {
	t.Parallel()
	var logins, cookies []string
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/p/_session":
			logins = append(logins, r.Method)
			w.Header().Set("Set-Cookie", "AuthSession=abc; Path=/")
			_, _ = io.WriteString(w, `{"ok":true}`)
		case "/p/_dbs_info":
			cookies = append(cookies, r.Header.Get("Cookie"))
			_, _ = io.WriteString(w, `[{"key":"db","info":{"update_seq":"5-x"}}]`)
		default:
			cookies = append(cookies, r.Header.Get("Cookie"))
			_, _ = io.WriteString(w, dbInfo)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(server.Close)
	sessions := new(couch.Sessions)
	with := func(c *couch.Config) { c.Username, c.Password, c.Sessions = "me", "s3cret", sessions }
	_, err := openServer(t, server.URL+"/p/", with).DatabasesInfo(t.Context(), []string{"db"})
	require.NoError(t, err)
	_, err = open(t, server.URL+"/p/db", with).Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{http.MethodPost}, logins)
	require.Equal(t, []string{"AuthSession=abc", "AuthSession=abc"}, cookies)
}

func TestWireUpdates(t *testing.T) {
	t.Parallel()
	t.Run("continuous", func(t *testing.T) {
		t.Parallel()
		replay := couchtest.Replay(t, 117)
		server := openServer(t, replay.URL, noRetries, as("admin", "password"))
		const since = "7-g1AAAACLeJzLYWBgYMpgTmHgzcvPy09JdcjLz8gvLskBCScyJNX___8_K4M5kSUXKMBubGBsZpGSiq4Yh_Y8FiDJ0ACk_kNNYQabkmqeYppqZoyuJwsARe8qkQ"
		rows, feed, err := updatesUntil(t, server, couch.UpdatesOptions{Since: raw(`"` + since + `"`), Heartbeat: time.Second})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF) // the recording was cut
		require.Equal(t, []string{"updated wa", "created wc", "updated _dbs", "updated _dbs", "deleted wc"}, namesAndTypes(rows))
		require.True(t, strings.HasPrefix(string(rows[4].Seq), `"12-g1AAAA`))
		require.False(t, feed.Rewound())
		sent(t, replay, "GET", "/_db_updates", url.Values{
			"feed": {"continuous"}, "heartbeat": {"1000"}, "since": {since},
		}.Encode())
		_, again := feed.Next()
		require.Equal(t, err, again)
	})
	t.Run("rewound", func(t *testing.T) {
		t.Parallel()
		rows, feed, err := updatesUntil(t, openServer(t, couchtest.Replay(t, 117).URL, noRetries), couch.UpdatesOptions{Since: raw(`"700-x"`)})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Len(t, rows, 5)
		require.True(t, feed.Rewound())
	})
	t.Run("unknown sequence", func(t *testing.T) {
		t.Parallel()
		_, err := openServer(t, couchtest.Replay(t, 121).URL, noRetries).Updates(t.Context(), couch.UpdatesOptions{Since: raw(`"what"`)})
		require.ErrorIs(t, err, couch.ErrUnknownSince)
		require.NotErrorIs(t, err, couch.ErrNoUpdates)
	})
	for number, says := range map[int]string{
		113: "because the server has no database _global_changes; an administrator can create it",
		114: `for the user "reader", which requires an administrator of the server`,
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			_, err := openServer(t, couchtest.Replay(t, number).URL, noRetries, as("reader", "s3cret")).Updates(t.Context(), couch.UpdatesOptions{})
			require.ErrorIs(t, err, couch.ErrNoUpdates)
			require.ErrorContains(t, err, says)
			replay := couchtest.ReplayBytes(t, jsonAnswer(200, "[]"), couchtest.Recorded(t, number).Response)
			_, err = openServer(t, replay.URL, noRetries, as("reader", "s3cret")).UpdatesLog(t.Context())
			require.ErrorIs(t, err, couch.ErrNoUpdates)
			require.ErrorContains(t, err, says)
		})
	}
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		replay := couchtest.ReplayBytes(t, jsonAnswer(200, "[]"), couchtest.Recorded(t, 119).Response, couchtest.Recorded(t, 34).Response)
		log, err := openServer(t, replay.URL, noRetries).UpdatesLog(t.Context())
		require.NoError(t, err)
		require.Equal(t, `_global_changes "1795225691"`, log.Identity)
		require.True(t, strings.HasPrefix(string(log.LastSeq), `"13-g1AAAA`))
		for seq, lacks := range map[string]bool{`"12-x"`: false, `"13-y"`: false, `"14-x"`: true, "9": false, "15": true, `"x"`: false, "": false} {
			require.Equal(t, lacks, log.Lacks(raw(seq)), seq)
		}
		var targets []string
		for _, r := range replay.Received() {
			targets = append(targets, r.Method+" "+r.Target)
		}
		require.Equal(t, []string{"POST /_dbs_info", "GET /_db_updates?limit=0&since=now", "GET /_global_changes"}, targets)
	})
	t.Run("descriptions", func(t *testing.T) {
		t.Parallel()
		replay := couchtest.Replay(t, 123)
		_, err := openServer(t, replay.URL, noRetries).DatabasesInfo(t.Context(), []string{"wa"})
		require.ErrorIs(t, err, couch.ErrUnauthorized)
		received := sent(t, replay, "POST", "/_dbs_info", "")
		require.JSONEq(t, `{"keys":["wa"]}`, string(received.Body))
		_, err = openServer(t, couchtest.Replay(t, 123).URL, noRetries).UpdatesLog(t.Context())
		require.ErrorIs(t, err, couch.ErrNoUpdates)
		require.ErrorContains(t, err, "without a user, which requires an administrator of the server")
	})
}

func TestUpdatesGoWrong(t *testing.T) {
	t.Parallel()
	const row = `{"db_name":"a","type":"updated","seq":"3-x"}` + "\n"
	for _, test := range []struct {
		name, body string
		rows       int
		is         error
		says       string
	}{
		{name: "ended", body: row + `{"last_seq":"3-x"}` + "\n", rows: 1, is: io.EOF},
		{name: "cut", body: row, rows: 1, is: io.ErrUnexpectedEOF, says: "the feed of database updates was cut"},
		{name: "cut in a row", body: row + row[:12], rows: 1, is: io.ErrUnexpectedEOF},
		{name: "empty", body: "", is: io.ErrUnexpectedEOF},
		{name: "HTML", body: "<html>", is: couch.ErrMalformed},
		{name: "no name", body: row + `{"seq":1}`, rows: 1, is: couch.ErrMalformed, says: "without the name of a database"},
		{name: "name is a number", body: `{"db_name":1}`, is: couch.ErrMalformed, says: "member db_name"},
		{name: "not an object", body: `["a"]`, is: couch.ErrMalformed, says: "not an object"},
		{name: "a late error", body: row + `{"error":"not_found","reason":"no_db_file"}`, rows: 1, says: "not_found: no_db_file"},
		{name: "too large", body: `{"db_name":"` + strings.Repeat("x", 2<<20) + `"}`, is: couch.ErrLimit},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, test.body) })
			rows, _, err := updatesUntil(t, server, couch.UpdatesOptions{})
			require.Len(t, rows, test.rows)
			require.Error(t, err)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			require.ErrorContains(t, err, test.says)
		})
	}
}

// A feed with heartbeats is alive, and one without is stalled.
func TestUpdatesThatFallSilent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := pipedServer(t, func(w http.ResponseWriter, r *http.Request) {
			for range 100 {
				_, _ = io.WriteString(w, "\n")
				flush(w)
				time.Sleep(30 * time.Second)
			}
			_, _ = io.WriteString(w, `{"db_name":"a","type":"updated","seq":"3-x"}`+"\n")
			flush(w)
			<-r.Context().Done()
		})
		feed, err := server.Updates(t.Context(), couch.UpdatesOptions{})
		require.NoError(t, err)
		defer feed.Close()
		start := time.Now()
		row, err := feed.Next()
		require.NoError(t, err)
		require.Equal(t, "a", row.Database)
		require.Equal(t, 50*time.Minute, time.Since(start))
		require.Equal(t, time.Now(), feed.Heard().In(time.Now().Location()))
		_, err = feed.Next()
		require.ErrorIs(t, err, couch.ErrStalled)
		require.Equal(t, 51*time.Minute+30*time.Second, time.Since(start))
		require.Equal(t, 90*time.Second, time.Since(feed.Heard()))
	})
}

// A server without the database of updates may have another log, and one that tells nothing has none to compare.
func TestIdentityOfTheLog(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ changes, root, want string }{
		"CouchDB 3.3":    {`200 {"instance_start_time":"17"}`, `200 {"uuid":"u"}`, `_global_changes "17"`},
		"before":         {`200 {"instance_start_time":"0"}`, `200 {"uuid":"u"}`, ""},
		"settee":         {`404 {"error":"not_found","reason":"Database does not exist."}`, `200 {"uuid":"u"}`, "server u"},
		"another server": {`404 no`, `200 hello`, ""},
		"secretive":      {`403 no`, `403 no`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := answering(t, func(w http.ResponseWriter, r *http.Request) {
				answer, ok := map[string]string{
					"/_dbs_info": "200 []", "/_db_updates": `200 {"results":[],"last_seq":7}`, "/_global_changes": test.changes, "/": test.root,
				}[r.URL.Path]
				assert.True(t, ok, r.URL.Path)
				var status int
				_, body, _ := strings.Cut(answer, " ")
				_, _ = fmt.Sscan(answer, &status)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}, noRetries)
			log, err := server.UpdatesLog(t.Context())
			require.NoError(t, err)
			require.Equal(t, couch.UpdatesLog{Identity: test.want, LastSeq: raw("7")}, log)
		})
	}
}

func TestDatabasesInfo(t *testing.T) {
	t.Parallel()
	t.Run("a server that accepts few names", func(t *testing.T) {
		t.Parallel()
		var sizes []int
		server := answering(t, func(w http.ResponseWriter, r *http.Request) {
			var request struct{ Keys []string }
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&request))
			sizes = append(sizes, len(request.Keys))
			if len(request.Keys) > 30 {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":"bad_request","reason":"too_many_keys"}`)
				return
			}
			var rows []string
			for i, name := range slices.Backward(request.Keys) { // any order
				switch i % 4 {
				case 0:
					rows = append(rows, fmt.Sprintf(`{"key":%q,"info":{"update_seq":"5-%s"}}`, name, name))
				case 1:
					rows = append(rows, fmt.Sprintf(`{"key":%q,"error":"not_found"}`, name))
				case 2:
					rows = append(rows, fmt.Sprintf(`{"key":%q,"error":"timeout"}`, name))
				}
			}
			_, _ = io.WriteString(w, "["+strings.Join(rows, ",")+"]")
		}, noRetries)
		names := make([]string, couch.MaxDatabasesInfo)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
		}
		for range 2 {
			infos, err := server.DatabasesInfo(t.Context(), names)
			require.NoError(t, err)
			require.Len(t, infos, len(names))
			for i, info := range infos {
				require.Equal(t, names[i], info.Name)
			}
			require.Equal(t, couch.DatabaseInfo{Name: "n0", UpdateSeq: raw(`"5-n0"`)}, infos[0])
			require.Equal(t, couch.DatabaseInfo{Name: "n1", Missing: true}, infos[1])
			require.Equal(t, couch.DatabaseInfo{Name: "n2"}, infos[2])
			require.Equal(t, couch.DatabaseInfo{Name: "n3"}, infos[3])
		}
		require.Equal(t, []int{100, 50, 25, 25, 25, 25, 25, 25, 25, 25}, sizes)
		_, err := server.DatabasesInfo(t.Context(), slices.Concat(names, []string{"more"}))
		require.ErrorContains(t, err, "101 names are more than 100")
		infos, err := server.DatabasesInfo(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, infos)
	})
	t.Run("a server that refuses all", func(t *testing.T) {
		t.Parallel()
		asked := 0
		server := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.WriteHeader(http.StatusBadRequest)
		}, noRetries)
		_, err := server.DatabasesInfo(t.Context(), make([]string, 100))
		require.ErrorContains(t, err, "400 Bad Request")
		require.Equal(t, 8, asked)
	})
	for _, early := range []string{"", "[", `[{"error":"unknown_error","reason":"badarg","ref":1}`} {
		t.Run("an answer that ends early: "+early, func(t *testing.T) {
			t.Parallel()
			answers := []string{early, early, `[{"key":"a","info":{"update_seq":"5-a"}}]`}
			server := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, answers[0])
				answers = answers[1:]
			})
			infos, err := server.DatabasesInfo(t.Context(), []string{"a"})
			require.NoError(t, err)
			require.Equal(t, []couch.DatabaseInfo{{Name: "a", UpdateSeq: raw(`"5-a"`)}}, infos)
			require.Empty(t, answers)
			server = answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, early) }, noRetries)
			_, err = server.DatabasesInfo(t.Context(), []string{"a"})
			require.ErrorContains(t, err, "(the server ended it early)")
		})
	}
	t.Run("nonsense", func(t *testing.T) {
		t.Parallel()
		server := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }, noRetries)
		_, err := server.DatabasesInfo(t.Context(), []string{"a"})
		require.ErrorIs(t, err, couch.ErrMalformed)
	})
}

// PouchDB Server's _db_updates waits for an update and has no sequences.
func TestLivePouchDBHasNoUpdates(t *testing.T) {
	t.Parallel()
	server := openServer(t, couchtest.Shared(t).URL)
	_, err := server.UpdatesLog(ctxFor(t, time.Minute))
	require.ErrorIs(t, err, couch.ErrNoUpdates)
	require.ErrorContains(t, err, "because the server does not have it")
}

func TestLiveChangesOfAServersDatabase(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		at := peer.DB(t, "a/d(e)")
		db := openAt(t, at)
		bare, username, password := couchtest.Credentials(at)
		root, escaped := bare[:strings.LastIndexByte(bare, '/')], bare[strings.LastIndexByte(bare, '/')+1:]
		name, err := url.PathUnescape(escaped)
		require.NoError(t, err)
		server := openServer(t, root, as(username, password))
		info, err := db.Info(t.Context())
		require.NoError(t, err)
		changed := func(since json.RawMessage) bool {
			feed, err := server.Changes(t.Context(), name, couch.ChangesOptions{Since: since, Limit: 1})
			require.NoError(t, err)
			defer feed.Close()
			_, err = feed.Next()
			if err != nil {
				require.Equal(t, io.EOF, err)
			}
			return err == nil
		}
		require.False(t, changed(info.UpdateSeq))
		write(t, db, revision("x", 1, "aa"))
		require.True(t, changed(info.UpdateSeq))
		_, err = server.Changes(t.Context(), "missing", couch.ChangesOptions{Limit: 1})
		require.ErrorIs(t, err, couch.ErrNoDatabase)
	})
}

// A CouchDB without its database of updates gets one, loses it, and gets another.
func TestLiveUpdates(t *testing.T) {
	t.Parallel()
	peer := couchtest.StartCouchDB(t, nil)
	server := openServer(t, peer.URL, as(peer.Username, peer.Password))
	ctx := ctxFor(t, 2*time.Minute)
	_, err := server.UpdatesLog(ctx)
	require.ErrorIs(t, err, couch.ErrNoUpdates)
	require.ErrorContains(t, err, "has no database _global_changes")
	_, err = openServer(t, peer.URL).UpdatesLog(ctx)
	require.ErrorIs(t, err, couch.ErrNoUpdates)
	require.ErrorContains(t, err, "without a user")
	_, err = openServer(t, peer.URL, as(peer.Username, "wrong")).UpdatesLog(ctx)
	require.ErrorIs(t, err, couch.ErrNoUpdates)

	do := func(method, path string, want int) { peer.Do(t, method, path, nil, want) }
	do(http.MethodPut, "/_global_changes", http.StatusCreated)
	log, err := server.UpdatesLog(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, log.Identity)
	// next waits for an update of a database.
	next := func(feed *couch.Updates, database string) couch.Update {
		for {
			row, err := feed.Next()
			require.NoError(t, err)
			if row.Database == database {
				return row
			}
		}
	}
	feed, err := server.Updates(ctx, couch.UpdatesOptions{Since: log.LastSeq, Heartbeat: time.Second})
	require.NoError(t, err)
	defer feed.Close()
	do(http.MethodPut, "/one", http.StatusCreated)
	row := next(feed, "one")
	require.Contains(t, []string{"created", "updated"}, row.Type)

	infos, err := server.DatabasesInfo(ctx, []string{"one", "two", "No Name"})
	require.NoError(t, err)
	var one couch.Info
	require.NoError(t, json.Unmarshal(peer.Do(t, http.MethodGet, "/one", nil, http.StatusOK), &one))
	require.Equal(t, []couch.DatabaseInfo{
		{Name: "one", UpdateSeq: one.UpdateSeq, InstanceStartTime: one.InstanceStartTime}, {Name: "two", Missing: true}, {Name: "No Name", Missing: true},
	}, infos)

	later, err := server.Updates(ctx, couch.UpdatesOptions{Since: row.Seq, Heartbeat: time.Second})
	require.NoError(t, err)
	defer later.Close()
	do(http.MethodPut, "/two", http.StatusCreated)
	next(later, "two")
	require.False(t, later.Rewound())

	do(http.MethodDelete, "/_global_changes", http.StatusOK)
	for err == nil {
		_, err = later.Next()
	}
	require.Equal(t, io.EOF, err)
	_, err = server.Updates(ctx, couch.UpdatesOptions{Since: row.Seq})
	require.ErrorIs(t, err, couch.ErrNoUpdates)
	do(http.MethodPut, "/_global_changes", http.StatusCreated)
	other, err := server.UpdatesLog(ctx)
	require.NoError(t, err)
	require.NotEqual(t, log.Identity, other.Identity)
}
