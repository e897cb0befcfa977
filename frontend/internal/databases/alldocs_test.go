package databases_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

// listed makes a database with the documents _design/d, a, b, B, ü and, with a conflict,
// conflict; gone was deleted. Their revisions are 1-r, the winner of conflict is 1-s.
func (n *node) listed() *docstore.Database {
	n.Helper()
	db := n.NewDatabase("db")
	for _, id := range []string{"_design/d", "a", "b", "B", "ü", "conflict"} {
		n.replicated(db, id, `{"v":1}`, false, []string{"r"})
	}
	n.replicated(db, "conflict", `{"v":2}`, false, []string{"s"})
	n.replicated(db, "gone", `{"v":1}`, true, []string{"r"})
	return db
}

// rows lists what a listing has: ids of documents, and what is said of others.
func rows(t *testing.T, text string) (list string) {
	t.Helper()
	var out []string
	for _, raw := range decode(t, text).(map[string]any)["rows"].([]any) {
		row := raw.(map[string]any)
		if row["error"] != nil {
			out = append(out, fmt.Sprintf("%v!%v", row["key"], row["error"]))
			continue
		}
		require.Equal(t, row["id"], row["key"])
		if row["value"].(map[string]any)["deleted"] == true {
			out = append(out, row["id"].(string)+"!deleted")
			continue
		}
		out = append(out, row["id"].(string))
	}
	return strings.Join(out, " ")
}

func TestAllDocs(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.listed()
	const all = "B _design/d a b conflict ü"
	for query, want := range map[string]struct {
		rows   string
		offset any
	}{
		``:                                {all, 0.0},
		`unknown=1`:                       {all, 0.0},
		`start_key_doc_id=b`:              {"b conflict ü", 3.0},
		`endkey_docid=a`:                  {"B _design/d a", 0.0},
		`startkey_docid=a&key="b"`:        {"b", 3.0},
		`descending=true`:                 {"ü conflict b a _design/d B", 0.0},
		`limit=2`:                         {"B _design/d", 0.0},
		`limit=0`:                         {"", 0.0},
		`limit=99999999999999999999`:      {all, 0.0},
		`skip=4`:                          {"conflict ü", 4.0},
		`skip=99`:                         {"", 6.0},
		`skip=1&limit=2`:                  {"_design/d a", 1.0},
		`startkey="a"`:                    {"a b conflict ü", 2.0},
		`start_key="aa"`:                  {"b conflict ü", 3.0},
		`startkey="a"&skip=1`:             {"b conflict ü", 3.0},
		`startkey="zzz"&skip=5`:           {"", 6.0},
		`endkey="b"`:                      {"B _design/d a b", 0.0},
		`end_key="b"&inclusive_end=false`: {"B _design/d a", 0.0},
		`startkey="a"&endkey="b"`:         {"a b", 2.0},
		`startkey="b"&endkey="a"`:         {"", 3.0},
		`startkey="b"&endkey="a"&descending=true`:                     {"b a", 2.0},
		`startkey="b"&endkey="a"&descending=true&inclusive_end=false`: {"b", 2.0},
		`key="b"`:                     {"b", 3.0},
		`key="bb"`:                    {"", 4.0},
		`key="gone"`:                  {"", 5.0},
		`key="b"&inclusive_end=false`: {"", 3.0},
		// A key that is not a string sorts before all ids.
		`startkey=7`:                             {all, 0.0},
		`startkey=null`:                          {all, 0.0},
		`startkey=""`:                            {all, 0.0},
		`endkey={}`:                              {"", 0.0},
		`endkey=""`:                              {"", 0.0},
		`key=[]`:                                 {"", 0.0},
		`startkey=false&descending=true`:         {"", 0.0},
		`endkey={"a":1}&descending=true`:         {"ü conflict b a _design/d B", 0.0},
		`keys=["b","no","gone","a","b"]`:         {"b no!not_found gone!deleted a b", nil},
		`keys=["b","no","a"]&descending=true`:    {"a no!not_found b", nil},
		`keys=["b","no","a","B"]&skip=1&limit=2`: {"no!not_found a", nil},
		`keys=["b","no","a","B"]&skip=1&limit=2&descending=true`: {"a no!not_found", nil},
		`keys=["b"]&skip=1`:         {"", nil},
		`keys=["b"]&limit=0`:        {"", nil},
		`keys=[]`:                   {"", nil},
		`keys=["","_x","_local/a"]`: {"!not_found _x!not_found _local/a!not_found", nil},
		`keys=[7,"a",null]`:         {"7!not_found a <nil>!not_found", nil},
	} {
		got := n.Get("/db/_all_docs?"+escapedQuery(t, query)).Is(t, http.StatusOK)
		require.Equal(t, want.rows, rows(t, got.Body), query)
		answered := got.JSON(t)
		require.EqualValues(t, 6, answered["total_rows"])
		require.Equal(t, want.offset, answered["offset"], query)
		require.Len(t, answered, 3)
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		require.Empty(t, n.Do(http.MethodHead, "/db/_all_docs?"+escapedQuery(t, query), "").Body)

		// A body has the same meaning as a query.
		require.Equal(t, got.Body, n.Do(http.MethodPost, "/db/_all_docs", asBody(t, query)).Body, query)
		several := n.Do(http.MethodPost, "/db/_all_docs/queries", `{"queries":[`+asBody(t, query)+`,{"key":"a"}]}`).Is(t, http.StatusOK)
		require.Equal(t, `{"results":[`+"\r\n"+strings.TrimSuffix(got.Body, "\n")+",\r\n"+
			`{"total_rows":6,"offset":2,"rows":[`+"\r\n"+`{"id":"a","key":"a","value":{"rev":"1-r"}}`+"\r\n]}\r\n]}\n", several.Body)
	}
}

// The query takes precedence over the body.
func TestAllDocsAskedForTwice(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.listed()
	const body = `{"start_key":"a","startkey":"a","limit":2,"skip":1,"keys":null,"inclusive_end":false,"end_key":"conflict","x":[1,{}]}`
	for query, want := range map[string]string{
		``:                             "b",
		`inclusive_end=true`:           "b conflict",
		`startkey="B"&skip=0`:          "B _design/d",
		`start_key="B"&limit=1&skip=0`: "B",
		`endkey="b"&skip=0`:            "a",
	} {
		require.Equal(t, want, rows(t, n.Do(http.MethodPost, "/db/_all_docs?"+escapedQuery(t, query), body).Body), query)
	}
	require.Equal(t, "ü a", rows(t, n.Do(http.MethodPost, `/db/_all_docs?keys=%5B%22%C3%BC%22,%22a%22%5D`, `{"keys":["b"]}`).Body))
}

// asBody writes a query as a JSON object, flags as text.
func asBody(t *testing.T, query string) string {
	t.Helper()
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	var members []string
	for name := range values {
		value := values.Get(name)
		if value == "true" || value == "false" && strings.HasPrefix(name, "in") || strings.HasSuffix(name, "docid") || name == "start_key_doc_id" {
			value = `"` + value + `"`
		}
		members = append(members, `"`+name+`": `+value)
	}
	return `{` + strings.Join(members, ", ") + `}`
}

func TestAllDocsForm(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.listed()
	n.replicated(db, "b", `{}`, false, []string{"t", "r"},
		n.upload(db, "b", "x", "text/plain", strings.NewReader(webtest.Gzipped(t, "text")), docstore.UploadOptions{Encoding: "gzip", DecodedLength: new(int64(4))}))
	att := `"x":{"content_type":"text/plain","revpos":2,"digest":"` + digest(webtest.Gzipped(t, "text")) + `",`
	for query, want := range map[string]string{
		`key="a"`:                                         `"total_rows":6,"offset":2,"rows":[` + "\r\n" + `{"id":"a","key":"a","value":{"rev":"1-r"}}`,
		`key="a"&include_docs=true`:                       `"total_rows":6,"offset":2,"rows":[` + "\r\n" + `{"id":"a","key":"a","value":{"rev":"1-r"},"doc":{"_id":"a","_rev":"1-r","v":1}}`,
		`key="x"`:                                         `"total_rows":6,"offset":5,"rows":[` + "\r\n",
		`keys=["gone","no"]`:                              `"total_rows":6,"offset":null,"rows":[` + "\r\n" + `{"id":"gone","key":"gone","value":{"rev":"1-r","deleted":true}},` + "\r\n" + `{"key":"no","error":"not_found"}`,
		`keys=["gone","no"]&include_docs=true`:            `"total_rows":6,"offset":null,"rows":[` + "\r\n" + `{"id":"gone","key":"gone","value":{"rev":"1-r","deleted":true},"doc":null},` + "\r\n" + `{"key":"no","error":"not_found"}`,
		`keys=[]&update_seq=true`:                         `"total_rows":6,"offset":null,"update_seq":null,"rows":[` + "\r\n",
		`key="conflict"&conflicts=true`:                   `"total_rows":6,"offset":4,"rows":[` + "\r\n" + `{"id":"conflict","key":"conflict","value":{"rev":"1-s"}}`,
		`key="conflict"&conflicts=true&include_docs=true`: `"total_rows":6,"offset":4,"rows":[` + "\r\n" + `{"id":"conflict","key":"conflict","value":{"rev":"1-s"},"doc":{"_id":"conflict","_rev":"1-s","v":2,"_conflicts":["1-r"]}}`,
		`key="b"&include_docs=true`:                       `"total_rows":6,"offset":3,"rows":[` + "\r\n" + `{"id":"b","key":"b","value":{"rev":"2-t"},"doc":{"_id":"b","_rev":"2-t","_attachments":{` + att + `"length":4,"stub":true}}}}`,
		`key="b"&include_docs=true&attachments=true&att_encoding_info=true`: `"total_rows":6,"offset":3,"rows":[` + "\r\n" +
			`{"id":"b","key":"b","value":{"rev":"2-t"},"doc":{"_id":"b","_rev":"2-t","_attachments":{` + att +
			fmt.Sprintf(`"data":"dGV4dA==","encoding":"gzip","encoded_length":%d}}}}`, len(webtest.Gzipped(t, "text"))),
	} {
		require.Equal(t, "{"+want+"\r\n]}\n", n.Get("/db/_all_docs?"+escapedQuery(t, query)).Body)
	}
	sequence, err := db.UpdateSequence(t.Context())
	require.NoError(t, err)
	require.Equal(t, `{"total_rows":6,"offset":0,"update_seq":"`+sequence.String()+`","rows":[`+"\r\n\r\n]}\n",
		n.Get("/db/_all_docs?update_seq=true&limit=0").Body)

	_, err = n.Documents.Create(t.Context(), "empty")
	require.NoError(t, err)
	require.Equal(t, `{"total_rows":0,"offset":0,"rows":[`+"\r\n\r\n]}\n", n.Get("/empty/_all_docs").Body)
}

func TestDesignDocs(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.listed()
	n.replicated(db, "_design/x", `{}`, false, []string{"r"})
	for query, want := range map[string]struct {
		rows   string
		offset any
	}{
		``:                                     {"_design/d _design/x", 0.0},
		`descending=true`:                      {"_design/x _design/d", 0.0},
		`startkey="_design/e"`:                 {"_design/x", 1.0},
		`endkey="_design/e"`:                   {"_design/d", 0.0},
		`endkey="zzz"`:                         {"_design/d _design/x", 0.0},
		`startkey="a"`:                         {"", 2.0},
		`endkey="A"`:                           {"", 0.0},
		`startkey="_design/e"&descending=true`: {"_design/d", 1.0},
		`startkey="z"&endkey="A"&descending=true`: {"_design/x _design/d", 0.0},
		`key="_design/x"`:                         {"_design/x", 1.0},
		`keys=["a","_design/x","_design/y"]`:      {"_design/x _design/y!not_found", nil},
		`keys=["a","b"]`:                          {"", nil},
		`skip=1`:                                  {"_design/x", 1.0},
	} {
		got := n.Get("/db/_design_docs?" + escapedQuery(t, query))
		require.Equal(t, want.rows, rows(t, got.Body), query)
		require.EqualValues(t, 2, got.JSON(t)["total_rows"])
		require.Equal(t, want.offset, got.JSON(t)["offset"], query)
		require.Equal(t, got.Body, n.Do(http.MethodPost, "/db/_design_docs", asBody(t, query)).Body)
	}
}

func TestAllDocsOfManyDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	n.fill(db, 2_000, `{}`)
	offset := func(query string) any {
		return n.Get("/db/_all_docs?limit=1&" + escapedQuery(t, query)).JSON(t)["offset"]
	}
	require.Equal(t, 1000.0, offset(`startkey="001000"`))
	require.Nil(t, offset(`startkey="001001"`), "that many are not counted")
	require.Equal(t, 1000.0, offset(`startkey="000999"&descending=true`))
	require.Nil(t, offset(`startkey="000998"&descending=true`))
	require.Equal(t, 1500.0, offset(`skip=1500`))

	// More keys than are looked up at once, in both directions.
	var keys, want []string
	for i := range 1_999 {
		keys, want = append(keys, fmt.Sprintf(`"%06d"`, i)), append(want, fmt.Sprintf("%06d", i))
	}
	body := `{"keys":[` + strings.Join(keys, ",") + `,1],"descending":true,"skip":1,"limit":1501}`
	got := strings.Fields(rows(t, n.Do(http.MethodPost, "/db/_all_docs", body).Body))
	require.Len(t, got, 1501)
	for i := range got {
		require.Equal(t, want[len(want)-1-i], got[i])
	}
}

// fill writes documents whose ids are six digits.
func (n *node) fill(db *docstore.Database, count int, body string) {
	n.Helper()
	for i := 0; i < count; i += 500 {
		var edits []docstore.Edit
		for id := i; id < min(i+500, count); id++ {
			edits = append(edits, webtest.Doc(fmt.Sprintf("%06d", id), body))
		}
		webtest.Write(n, db, edits...)
	}
}
