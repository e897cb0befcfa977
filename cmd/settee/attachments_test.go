package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// TestCouchDBEncodedAttachments copies attachments that a client has compressed, and ones that CouchDB has compressed, to the
// node and to a second CouchDB. Each is read in all ways with the same bytes and lengths as from the first.
func TestCouchDBEncodedAttachments(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	node := serveNode(t, aStore(t))
	source, hosted, second := peer.DB(t, "encoded"), node.hosted("encoded"), peer.DB(t, "encoded-second")
	contents := map[string][]byte{"empty": {}, "small": []byte("hello hello hello hello"), "large": make([]byte, 500_000)}
	for i := range contents["large"] {
		contents["large"][i] = "0123456789abcdef"[rand.IntN(16)]
	}
	for name, content := range contents {
		var zipped bytes.Buffer
		zip := gzip.NewWriter(&zipped)
		_, err := zip.Write(content)
		require.NoError(t, err)
		require.NoError(t, zip.Close())
		for _, database := range []string{source, hosted} { // the node gets some from clients, too
			putAs(t, database+"/client-"+name+"-"+database[len(database)-1:]+"/a", zipped.Bytes(), "application/x-bin", "gzip")
		}
		putAs(t, source+"/server-"+name+"/a", content, "text/plain", "")
	}
	for _, ends := range [][2]string{{source, hosted}, {hosted, second}, {hosted, source}} {
		require.Zero(t, node.replicateOnce(`"source":%q,"target":%q`, ends[0], ends[1]).History[0].DocWriteFailures)
		out, errs, status := settee(t, "verify", "--attachments", ends[0], ends[1])
		require.Zero(t, status, out+errs)
	}
	couchtest.SameTrees(t, source, hosted)
	couchtest.SameTrees(t, source, second)
	for id := range couchtest.Trees(t, source) {
		want := readEncoded(t, source, id)
		require.Equal(t, want, readEncoded(t, hosted, id), id)
		require.Equal(t, want, readEncoded(t, second, id), id)
	}

	// The same from a server that answers open_revs with JSON. The encoding of such a copy may be another one.
	at, err := url.Parse(source)
	require.NoError(t, err)
	forward := couchtest.Proxy(t, source)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Accept", "application/json")
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(plain.Close)
	for _, target := range []string{node.hosted("from-json"), peer.DB(t, "from-json")} {
		require.Zero(t, node.replicateOnce(`"source":%q,"target":%q`, plain.URL+at.Path, target).History[0].DocWriteFailures)
		out, errs, status := settee(t, "verify", "--attachments", source, target)
		require.Zero(t, status, out+errs)
	}
}

func putAs(t *testing.T, target string, content []byte, mediaType, encoding string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, target, bytes.NewReader(content))
	require.NoError(t, err)
	request.Header.Set("Content-Type", mediaType)
	if encoding != "" {
		request.Header.Set("Content-Encoding", encoding)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusCreated, response.StatusCode)
}

// readEncoded reads the attachment a of a document in all ways.
func readEncoded(t *testing.T, database, id string) map[string]any {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	get := func(method, path, accept, encoding string) (http.Header, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, database+"/"+id+path, http.NoBody)
		require.NoError(t, err)
		request.Header.Set("Accept", accept)
		if encoding != "" {
			request.Header.Set("Accept-Encoding", encoding)
		}
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, response.StatusCode, path)
		return response.Header, string(body)
	}
	all := map[string]any{}
	for _, query := range []string{"", "?att_encoding_info=true", "?attachments=true", "?attachments=true&att_encoding_info=true"} {
		var doc map[string]any
		_, body := get(http.MethodGet, query, "application/json", "")
		require.NoError(t, json.Unmarshal([]byte(body), &doc))
		all["document"+query] = doc["_attachments"]
	}
	about := all["document?att_encoding_info=true"].(map[string]any)["a"].(map[string]any)
	for _, encoding := range []string{"", "gzip"} {
		answer, body := get(http.MethodGet, "/a", "*/*", encoding)
		head, _ := get(http.MethodHead, "/a", "*/*", encoding)
		all["GET "+encoding] = body
		for _, name := range []string{"Content-Encoding", "ETag", "Accept-Ranges"} {
			all[name+" "+encoding] = []string{answer.Get(name), head.Get(name)}
		}
		if encoding == "gzip" || about["length"] != about["encoded_length"] {
			all["Content-Length "+encoding] = []string{answer.Get("Content-Length"), head.Get("Content-Length")}
		}
	}
	return all
}
