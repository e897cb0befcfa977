package main

import (
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// hostilePeer is a server that repeats everything that it received: in errors of each status, as JSON and as text, in
// redirects, within feeds, and in malformed answers.
func hostilePeer(t *testing.T, m *marks) *httptest.Server {
	cookie, token := m.plant("session-cookie"), m.plant("access-token")
	hang := make(chan struct{})
	peer := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		echo := fmt.Sprintf("%s %s %s:%s %s", r.RequestURI, body, user, password, url.QueryEscape(password))
		for name, values := range r.Header {
			echo += fmt.Sprintf("; %s: %s", name, values)
		}
		inJSON := func() string {
			text, _ := json.Marshal(echo) // strings always encode
			return string(text)
		}
		segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		kind := segments[0]
		last := segments[len(segments)-1]
		refuse := func(status int) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":%s,"reason":%s,"error_description":%s}`, inJSON(), inJSON(), inJSON())
		}
		if last == "_session" {
			if kind == "session" {
				w.Header().Set("Set-Cookie", "AuthSession="+cookie+"; Version=1; Path=/; HttpOnly")
				fmt.Fprint(w, `{"ok":true,"name":"u","roles":[]}`)
				return
			}
			if kind == "login-refused" {
				refuse(http.StatusForbidden)
				return
			}
			w.WriteHeader(http.StatusNotFound)
			return
		}
		info := func() {
			fmt.Fprint(w, `{"db_name":"x","update_seq":"1-x","instance_start_time":"1700000000","doc_count":1,"doc_del_count":0}`)
		}
		isDatabase := len(segments) == 2
		isLocal := len(segments) > 2 && segments[2] == "_local"
		switch {
		case kind == "token":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":%q,"expires_in":3600}`, token)
		case kind == "status401", kind == "login-refused":
			refuse(http.StatusUnauthorized)
		case kind == "status403":
			refuse(http.StatusForbidden)
		case kind == "create-refused" && r.Method == http.MethodPut:
			refuse(http.StatusUnauthorized)
		case kind == "status404", kind == "create-refused":
			refuse(http.StatusNotFound)
		case kind == "status500", kind == "session":
			refuse(http.StatusInternalServerError)
		case kind == "status429":
			w.Header().Set("Retry-After", "3600")
			refuse(http.StatusTooManyRequests)
		case kind == "text":
			http.Error(w, echo, http.StatusBadGateway)
		case kind == "page":
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "<html><body>%s</body></html>", strings.ReplaceAll(url.PathEscape(echo), "%20", " "))
		case kind == "elsewhere":
			w.Header().Set("Location", "http://"+user+":"+password+"@"+password+".example/"+url.PathEscape(echo))
			w.WriteHeader(http.StatusFound)
		case kind == "circle":
			w.Header().Set("Location", "/circle/x?"+url.QueryEscape(echo))
			w.WriteHeader(http.StatusFound)
		case kind == "nowhere":
			w.Header().Set("Location", "http://"+password+"\x7f:"+password)
			w.WriteHeader(http.StatusFound)
		case kind == "malformed":
			fmt.Fprintf(w, `{"db_name":%s`, echo)
		case kind == "hang":
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		case isDatabase && kind == "sequence":
			fmt.Fprintf(w, `{"db_name":"x","update_seq":%s,"doc_count":1}`, inJSON())
		case isDatabase:
			info()
		case isLocal && r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"ok":true,"id":"_local/x","rev":"0-1"}`)
		case isLocal:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"not_found","reason":"missing"}`)
		case last == "_design/d" || len(segments) > 3 && segments[2] == "_design":
			if kind == "filter-code" {
				refuse(http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, `{"_id":"_design/d","_rev":"1-a","filters":{"f":"function(doc, req) { throw req.query.token; }"}}`)
		case last == "_changes":
			switch kind {
			case "filter-crash":
				refuse(http.StatusInternalServerError)
			case "changes-refused":
				refuse(http.StatusForbidden)
			case "bad-row":
				fmt.Fprintf(w, `{"results":[{"seq":"1-x",%s:1,"changes":[{"rev":"1-a"}]}],"last_seq":"1-x"}`, inJSON())
			case "late-error":
				if since := r.URL.Query().Get("since"); since != "" && since != "0" {
					refuse(http.StatusInternalServerError) // otherwise the run would never end
					return
				}
				fmt.Fprintf(w, `{"results":[{"seq":"1-x","id":"a","changes":[{"rev":"1-a"}]},{"error":%s,"reason":%s}`, inJSON(), inJSON())
			case "sequence":
				fmt.Fprintf(w, `{"results":[{"seq":%s,"id":"a","changes":[{"rev":"1-a"}]}],"last_seq":%s,"pending":0}`, inJSON(), inJSON())
			default:
				fmt.Fprint(w, `{"results":[{"seq":"1-x","id":"a","changes":[{"rev":"1-a"}]}],"last_seq":"1-x","pending":0}`)
			}
		case last == "_ensure_full_commit":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"ok":true,"instance_start_time":"1700000000"}`)
		case last == "_revs_diff":
			fmt.Fprint(w, `{"a":{"missing":["1-a"]}}`)
		case last == "_bulk_get" && kind == "bulk-get-error":
			fmt.Fprintf(w, `{"results":[{"id":"a","docs":[{"error":{"id":"a","rev":"1-a","error":%s,"reason":%s}}]}]}`, inJSON(), inJSON())
		case last == "_bulk_get":
			fmt.Fprint(w, `{"results":[{"id":"a","docs":[{"ok":{"_id":"a","_rev":"1-a","_revisions":{"start":1,"ids":["a"]}}}]}]}`)
		case last == "_bulk_docs" && kind == "bulk-docs-crash":
			refuse(http.StatusInternalServerError)
		case last == "_bulk_docs" && kind == "bulk-docs-refused":
			refuse(http.StatusForbidden)
		case last == "_bulk_docs":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `[{"id":"a","rev":"1-a","error":"forbidden","reason":%s}]`, inJSON())
		default:
			refuse(http.StatusInternalServerError)
		}
	}))
	peer.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	peer.Start()
	t.Cleanup(func() {
		close(hang)
		peer.Close()
	})
	return peer
}
