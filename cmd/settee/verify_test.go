package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "verified"), peer.DB(t, "verifytarget")
		couchtest.Populate(t, source, couchtest.Population{Seed: 5, Docs: 50, Attachments: couchtest.Sizes(5, 3, 1000)})

		out, errs, status := settee(t, "replicate", source, target, "--verify")
		require.Zero(t, status, errs)
		assert.Regexp(t, `(?s)^completed: .*\nequal: 50 revisions checked, 0 missing on the target in .*s\n$`, out)
		out, errs, status = settee(t, "verify", source, target, "--both", "--attachments")
		require.Zero(t, status, errs)
		assert.Regexp(t, `^equal: 100 revisions checked, 0 missing on the target, \d+ attachments checked in`, out)

		ask(t, http.StatusCreated, http.MethodPost, source+"/_bulk_docs", `{"new_edits":false,"docs":[
			{"_id":"a","_rev":"1-a"},{"_id":"a","_rev":"2-b"},{"_id":"a","_rev":"1-c","_deleted":true},{"_id":"<b>","_rev":"1-b","_deleted":true},
			{"_id":"c","_rev":"1-a","_attachments":{"f":{"content_type":"image/png","data":"AAAA"}}}]}`)
		ask(t, http.StatusCreated, http.MethodPost, target+"/_bulk_docs", `{"new_edits":false,"docs":[
			{"_id":"d","_rev":"1-a"},{"_id":"c","_rev":"1-a","_attachments":{"f":{"content_type":"image/png","data":"AAAB"}}}]}`)
		all := []string{"verify", source, target, "--both", "--attachments", "--wait", "0s"}
		out, errs, status = settee(t, all...)
		assert.Equal(t, exitFindings, status, errs)
		for _, line := range []string{
			`missing on the target: "a" 2-b (winner)`, `missing on the target: "a" 1-a (conflict)`,
			`missing on the target: "a" 1-c (conflict, deleted)`, `missing on the target: "<b>" 1-b (winner, deleted)`,
			`missing on the source: "d" 1-a (winner)`,
			`different attachment: "c" 1-a "f": source "image/png" 3 bytes sha256-`,
		} {
			assert.Contains(t, out, line)
		}
		assert.Regexp(t, `\ndifferent: 107 revisions checked, 4 missing on the target, 1 missing on the source, \d+ attachments checked, 1 attachments different in .*s\n$`, out)

		out, _, status = settee(t, append(all, "--json")...)
		assert.Equal(t, exitFindings, status)
		objects := []map[string]any{}
		for line := range strings.Lines(out) {
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &object), line)
			objects = append(objects, object)
		}
		require.Len(t, objects, 7)
		assert.Contains(t, objects, map[string]any{"missing": "target", "id": "<b>", "rev": "1-b", "winner": true, "deleted": true})
		assert.Contains(t, out, `{"attachment":"f","id":"c","rev":"1-a","source":{"content_type":"image/png","length":3,"digest":"sha256-`)
		last := objects[6]
		assert.Equal(t, "different", last["outcome"])
		assert.EqualValues(t, 4, last["missing_at_target"])
		assert.EqualValues(t, 1, last["missing_at_source"])
		assert.EqualValues(t, 1, last["attachments_different"])

		_, _, status = settee(t, "verify", source, target, "--doc-id", "doc-000001", "--doc-id", "d")
		assert.Zero(t, status)

		out, errs, status = settee(t, "verify", source, target+"-nosuchdb", "--json", "--set", "replicator/retries_per_request=0")
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, out, `{"outcome":"failed","revisions_checked":0,`)
		assert.Contains(t, errs, "db_not_found: could not open")

		waits := begin(t, "revisions checked", nil, "verify", source, target, "--wait", "1h")
		assert.Equal(t, 130, waits.end(syscall.SIGINT))
		assert.Contains(t, waits.logged(), "stopped before everything was compared")
	})
}

// A document that the target refuses is missing there, whatever the replication says.
func TestVerifyAfterARefusal(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	source, target := peer.DB(t, "verifyrefused"), peer.DB(t, "verifyrefuses")
	request(t, http.MethodPut, target+"/_design/v", `{"validate_doc_update":"function(doc) { if (doc.bad) throw({forbidden: 'no bad documents'}); }"}`)
	request(t, http.MethodPut, source+"/bad", `{"bad":true}`)
	request(t, http.MethodPut, source+"/good", `{}`)
	out, _, status := settee(t, "replicate", source, target, "--verify")
	assert.Equal(t, exitFindings, status)
	assert.Regexp(t, `(?s)1 written, 1 refused.*\nmissing on the target: "bad" 1-\S+ \(winner\)\ndifferent: 2 revisions checked, 1 missing`, out)
}
