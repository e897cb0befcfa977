package frontend_test

import (
	"net/http"
	"net/url"
)

// askPaths asks with paths that CouchDB decodes in its own way.
func askPaths() []asked {
	return []asked{
		askPut("/db/a+b", `{}`), askGet("/db/a%20b"), askGet("/db/a%2Bb"), askPut("/db/a%2Bb", `{"v":2}`), askGet("/db/_all_docs"),
		askPut("/db/_local/a+b", `{}`), askGet("/db/_local/a%20b"), askPut("/db/_design/a+b", `{}`), askGet("/db/_design/a%20b"),
		askPut("/db/a+c/x+y", "zz", "Content-Type", someBytes), askGet("/db/a%20c"), askGet("/db/a+c/x+y"), askGet("/db/a+c/x%2By"),
		{"COPY", "/db/a+b", "", []string{"Destination", "d+e"}}, askGet("/db/d%20e"), askGet("/db/d%2Be"),
		{"COPY", "/db/a+b", "", []string{"Destination", "f%2Bg"}}, askGet("/db/f%2Bg"),
		askPost("/db/_compact", ``), askPost("/db/_compact/a+b", ``), askPost("/db/_compact/none", ``), askPost("/db/_compact/a+b/c", ``),
		askPost("/db/_compact/_design", ``), askGet("/db/_compact/none"),
	}
}

// askMethods asks with another method than that of the request.
func askMethods() []asked {
	ask := func(method, target, body string, headers ...string) asked {
		return askPost(target, body, append(headers, "X-HTTP-Method-Override", method)...)
	}
	get := askGet("/db/c")
	get.headers = append(get.headers, "X-HTTP-Method-Override", "PUT")
	return []asked{
		ask("PUT", "/db/a", `{}`), ask("put", "/db/a", `{}`), ask("GET", "/db/a", ``), ask("HEAD", "/db/a", ``), get,
		askPut("/db/b", `{}`, "X-HTTP-Method-Override", "GET"), ask("POST", "/db", `{"_id":"p"}`), ask("COPY", "/db/a", ``, "Destination", "cc"),
		ask("PATCH", "/db/a", `{}`), ask("OPTIONS", "/db/a", `{}`), ask("DELETE", "/db/a", ``), ask("DELETE", "/db/none", ``),
		ask("DELETE", "/db/a?rev=1-967a00dff5e02add41819138abb3284d", ``), askGet("/db/a"),
	}
}

// askBatches asks for writes that CouchDB makes later, and does not read them.
func askBatches() []asked {
	return []asked{
		askPut("/db/a", `{}`), askPut("/db/a?batch=ok", `{"v":1}`), askPut("/db/a?batch=ok", `{"_rev":"1-967a00dff5e02add41819138abb3284d","v":1}`),
		askPut("/db/a?batch=ok", `{"_rev":"9-967a00dff5e02add41819138abb3284d","v":1}`), askPut("/db/a?batch=ok", `{"_rev":"x"}`),
		askPost("/db?batch=ok", `{"_id":"a"}`), askPost("/db?batch=ok", `{"_id":"b"}`), askPost("/db?batch=ok", `{"_id":"_x"}`),
		askPut("/db/_local/a?batch=ok", `{"v":3}`), askPut("/db/c?batch=ok&new_edits=false", `{"_rev":"3-a"}`),
		askPost("/db/_bulk_docs", `{"all_or_nothing":true,"docs":[{"_id":"n","_rev":"1-a"},{"_id":"a"},{"_id":"_local/a"}]}`),
		askPost("/db/_bulk_docs", `{"docs":[{"_id":"n"}],"all_or_nothing":true}`), askGet("/db/n"),
		askPost("/db/_bulk_docs", `{"all_or_nothing":true,"docs":[]}`), askPost("/db/_bulk_docs", `{"all_or_nothing":true,"docs":"x"}`),
		askPost("/db/_bulk_docs", `{"all_or_nothing":true,"docs":[{"_id":"_x"}]}`),
		askPost("/db/_bulk_docs", `{"all_or_nothing":"x","docs":[{"_id":"o"},{"_id":"a"}]}`),
		askPost("/db/_bulk_docs", `{"all_or_nothing":true,"new_edits":false,"docs":[{"_id":"p","_rev":"1-a"}]}`), askGet("/db/p"),
	}
}

// askLists asks for revisions with lists that are none.
func askLists() (all []asked) {
	all = append(all, askPut("/db/a", `{}`))
	for _, list := range []string{
		"", "x", `"all"`, "All", "{}", "[", "[1]", "null", "5", `"x"`, "[]", "true", `["x"]`, `["1-a",3]`, " [] ",
	} {
		for _, name := range []string{"open_revs", "atts_since"} {
			all = append(all, askGet("/db/a?"+name+"="+url.QueryEscape(list)))
		}
	}
	return all
}

func askLocalDocs() (all []asked) {
	for _, id := range []string{"a", "c", "b", "_local"} {
		all = append(all, askPut("/db/_local/"+id, `{"v":"`+id+`"}`))
	}
	for _, query := range []string{
		``, `include_docs=true`, `limit=1&skip=1`, `limit=0`, `skip=9`, `descending=true`, `startkey="_local/b"`, `startkey="b"`, `startkey=1`,
		`endkey="_local/b"`, `endkey="_local/b"&inclusive_end=false`, `endkey="_local/b"&inclusive_end=false&descending=true`,
		`endkey="_local/b"&descending=true`, `startkey="_local/b"&endkey="_local/bb"`, `key="_local/b"`, `key="_local/z"`,
		`descending=true&startkey="_local/b"`, `update_seq=true&limit=1`, `conflicts=true&include_docs=true&limit=1`,
		`keys=["_local/b","_local/z","a",3]`, `keys=["_local/b","_local/a","_local/b"]&descending=true&include_docs=true`,
	} {
		all = append(all, askGet("/db/_local_docs?"+(&url.URL{RawQuery: url.PathEscape(query)}).RawQuery))
	}
	for _, body := range []string{
		`{}`, `{"limit":1}`, `{"keys":[]}`, `{"keys":["_local/c","_local/a","_local/c"]}`, `{"keys":["_local/c","_local/z"],"include_docs":true}`,
	} {
		all = append(all, askPost("/db/_local_docs", body))
	}
	return append(all,
		askPost("/db/_local_docs/queries", `{"queries":[{"limit":1},{"keys":["_local/b"]},{"include_docs":true,"descending":true,"skip":1}]}`),
		asked{http.MethodDelete, "/db/_local/b", "", nil}, askGet("/db/_local_docs"), askPut("/db/_local_docs", `{}`))
}

// askRevsLimit asks for ancestors after the limit was made smaller, and larger again.
func askRevsLimit() (all []asked) {
	all = append(all, askPut("/db/a?new_edits=false", `{"_revisions":{"start":5,"ids":["e","d","c","b","a"]}}`),
		askPut("/db/a?new_edits=false", `{"_revisions":{"start":3,"ids":["y","x","w"]}}`))
	for _, limit := range []string{"2", "1", "4", "1000"} {
		all = append(all, askPut("/db/_revs_limit", limit), askGet("/db/_revs_limit"), askGet("/db/a?revs=true"), askGet("/db/a?revs=true&rev=3-y"),
			askGet("/db/a?revs_info=true"), askGet(`/db/a?open_revs=[%223-y%22]&revs=true`), askGet("/db/a?meta=true&revs=true"),
			askPost("/db/_bulk_get?revs=true", `{"docs":[{"id":"a","rev":"3-y"},{"id":"a","rev":"5-e"}]}`),
			askPost("/db/_revs_diff", `{"a":["5-e","1-a","4-z"]}`))
	}
	return all
}

// askNodes asks about nodes and the setup. The answers do not depend on the name of the node.
func askNodes() []asked {
	const stats = "/_node/_local/_stats"
	return []asked{
		askGet("/_cluster_setup"), askGet("/_cluster_setup?ensure_dbs_exist=%5B%22_users%22%5D"),
		askPost("/_cluster_setup", `{"action":"finish_cluster"}`), askPost("/_cluster_setup", `{"action":"nope"}`),
		askPost("/_cluster_setup", `{}`), askPost("/_cluster_setup", `{}`, "Content-Type", "text/plain"),
		askGet("/_node"), askGet("/_node/nope"), askGet("/_node/nope/_system"), askGet("/_node/nope@host/_stats/couchdb"),
		askGet("/_node/nope/_versions"), askGet("/_node/nope/_config/log/level"),
		askGet(stats + "/nope"), askGet(stats + "/couchdb/nope/more"), askGet(stats + "/couchdb/httpd/requests/value/more"),
		askGet(stats + "/couchdb/httpd/requests/desc"), askGet(stats + "/couchdb/httpd/requests/type"),
	}
}

// askConfiguration asks to change sections that cannot be changed over HTTP.
func askConfiguration() (all []asked) {
	const path = "/_node/_local/_config/"
	for _, section := range []string{
		"daemons", "external", "feature_flags", "httpd_db_handlers", "httpd_design_handlers", "httpd_global_handlers",
		"native_query_servers", "os_daemons", "query_servers", "%71uery_servers",
	} {
		all = append(all, askPut(path+section+"/x", `"y"`), asked{http.MethodDelete, path + section + "/x", "", nil}, askGet(path+section+"/x"))
	}
	return append(all, askPut(path+"daemons/x", "no JSON"), askPut(path+"daemons/x", `"y"`, "X-Couch-Persist", "false"))
}
