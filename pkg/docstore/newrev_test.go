package docstore_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/pkg/couch/couchtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/memkv"
)

var (
	revsSeed   = flag.Uint64("revs.seed", 0, "the seed of the random edits; 0 means another one in each run")
	revsRecord = flag.Bool("revs.record", false, "write the revisions that a CouchDB gives to testdata/revisions.json")
)

// revision is an edit, and the revision that CouchDB gives to it.
type revision struct {
	// Parent is a revision that is written before, if it is not empty. Without a mention the edit replaces it because it
	// is deleted.
	Parent        string `json:"parent,omitempty"`
	ParentDeleted bool   `json:"parent_deleted,omitempty"`
	Unmentioned   bool   `json:"unmentioned,omitempty"`
	Deleted       bool   `json:"deleted,omitempty"`
	// Body is the body, in which … stands for Repeat, Times times.
	Body        string               `json:"body"`
	Repeat      string               `json:"repeat,omitempty"`
	Times       int                  `json:"times,omitempty"`
	Attachments []revisionAttachment `json:"attachments,omitempty"`
	Rev         string               `json:"rev"`
}

// revisionAttachment is an attachment of a type that CouchDB does not compress.
type revisionAttachment struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Content string `json:"content"`
}

func (r *revision) body() string {
	return strings.Replace(r.Body, "…", strings.Repeat(r.Repeat, r.Times), 1)
}

var revisionsFile = filepath.Join("testdata", "revisions.json")

func TestRecordedRevisions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(revisionsFile)
	require.NoError(t, err)
	var recorded []revision
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.Greater(t, len(recorded), 300)
	requireRevisions(t, recorded)

	// Those that everybody knows.
	for body, want := range map[string]string{
		`{}`: "1-967a00dff5e02add41819138abb3284d", `{"a":1}`: "1-23202479633c2b380f79507a776743d5",
	} {
		requireRevisions(t, []revision{{Body: body, Rev: want}})
	}
}

// TestRevisionsOfCouchDB writes edits into a CouchDB and compares the revisions.
func TestRevisionsOfCouchDB(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*revsSeed, rand.Uint64())
	if *revsRecord {
		seed = 1
	}
	t.Logf("replay it with -revs.seed=%d", seed)
	server := couchtest.SharedCouchDB(t)
	at, err := url.Parse(server.DB(t, "revisions"))
	require.NoError(t, err)
	nearest := !server.Release(t).Before352
	all := fixedRevisions(nearest)
	count := 400
	if !*revsRecord {
		count = len(all) + seeds.Rounds(t, count-len(all))
	}
	for g := (editGenerator{rand.New(rand.NewPCG(seed, 22)), nearest}); len(all) < count; {
		all = append(all, g.revision())
	}
	for i := range all {
		all[i].write(t, server, fmt.Sprintf("%s/%d", at.Path, i))
	}
	requireRevisions(t, all)
	if *revsRecord {
		var text bytes.Buffer
		for i, r := range all {
			line, err := json.Marshal(r)
			require.NoError(t, err)
			fmt.Fprintf(&text, "%c%s\n", "[,"[min(i, 1)], line)
		}
		require.NoError(t, os.WriteFile(revisionsFile, append(text.Bytes(), ']', '\n'), 0o644))
	}
}

// write writes the edit into a CouchDB, and fills in its revision.
func (r *revision) write(t *testing.T, server *couchtest.CouchDB, path string) {
	t.Helper()
	if r.Parent != "" {
		plant := fmt.Appendf(nil, `{"_rev":%q,"_deleted":%t}`, r.Parent, r.ParentDeleted)
		server.Do(t, http.MethodPut, path+"?new_edits=false", plant, statusOf(r.ParentDeleted))
	}
	var doc strings.Builder
	doc.WriteString(`{"_deleted":` + strconv.FormatBool(r.Deleted))
	if r.Parent != "" && !r.Unmentioned {
		fmt.Fprintf(&doc, `,"_rev":%q`, r.Parent)
	}
	if len(r.Attachments) > 0 {
		for i, a := range r.Attachments {
			fmt.Fprintf(&doc, `%s%s:{"content_type":%q,"data":%q}`, []string{`,"_attachments":{`, ","}[min(i, 1)],
				quoted(t, a.Name), a.Type, base64.StdEncoding.EncodeToString([]byte(a.Content)))
		}
		doc.WriteString("}")
	}
	if members := strings.TrimSpace(strings.Trim(strings.TrimSpace(r.body()), "{}")); members != "" {
		doc.WriteString("," + strings.TrimPrefix(strings.TrimSpace(r.body()), "{"))
	} else {
		doc.WriteString("}")
	}
	var answer struct{ Rev string }
	require.NoError(t, json.Unmarshal(server.Do(t, http.MethodPut, path, []byte(doc.String()), statusOf(r.Deleted)), &answer))
	r.Rev = answer.Rev
}

// statusOf returns the status of the answer to a document that is written.
func statusOf(deleted bool) int {
	if deleted {
		return http.StatusOK
	}
	return http.StatusCreated
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(text)
	require.NoError(t, err)
	return string(raw)
}

// requireRevisions makes edits and requires their revisions.
func requireRevisions(t *testing.T, all []revision) {
	t.Helper()
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	b := newBundle(t, db, docstore.Options{})
	for i, r := range all {
		id := strconv.Itoa(i)
		edit := docstore.Edit{ID: id, Deleted: r.Deleted, Body: docjson.Must(r.body())}
		if r.Parent != "" {
			parent := parse(t, r.Parent)
			planted := b.write(t, []docstore.Edit{
				{ID: id, Pos: parent.Pos, Path: []string{parent.ID}, Deleted: r.ParentDeleted},
			}, docstore.WriteOptions{Replicated: true})
			require.NoError(t, planted[0].Err)
			if !r.Unmentioned {
				edit.Rev = parent
			}
		}
		for _, a := range r.Attachments {
			upload, err := b.db.Upload(t.Context(), id, strings.NewReader(a.Content), docstore.UploadOptions{})
			require.NoError(t, err)
			edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: a.Name, Type: a.Type, Upload: upload})
		}
		got, err := b.db.Put(t.Context(), edit)
		require.NoError(t, err)
		require.Equal(t, r.Rev, got.String(), "%+v", r)
	}
}

// fixedRevisions are edits of which each has something of its own.
func fixedRevisions(nearest bool) (all []revision) {
	for _, body := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"_replication_state":"completed","a":1}`, `{"a":[]}`, `{"a":{}}`, `{"a":null,"b":true,"c":false}`,
		`{"a":[1,2,255]}`, `{"a":[1,2,256]}`, `{"a":[1,-1]}`, `{"a":[1,2.0]}`, `{"a":[0],"b":[[0]],"c":[[]]}`, `{"a":[-0]}`,
		`{"a":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`,
		`{"a":` + strings.Repeat(`{"":`, 1000) + "1" + strings.Repeat("}", 1000) + `}`,
		// names twice
		`{"a":1,"b":2,"a":3}`, `{"a":1,"b":2,"\u0061":3}`, `{"a":{"a":1,"a":2},"a":{"b":{"c":1,"c":2},"b":{"c":3,"c":[4,256,{"d":1,"d":2}]}}}`,
		`{"x":[{"a":{"q":1,"q":2},"a":5,"b":{"r":1,"r":2}}],"x":[{"a":{"q":1,"q":2},"a":5,"b":{"r":1,"r":2}}]}`,
		`{` + names(1, 9) + `,` + names(3, 5) + `}`, `{` + names(1, 600) + `,` + names(20, 300) + `,"z":1}`, `{` + names(1, 9) + `}`,
		`{"":1,"":2," ":3}`,
		// strings
		`{"a":"\u0000\b\f\n\r\t\"\\\/\u00e9\ud83d\ude00\uffff\ufffe"}`, `{"é😀\u007f":"é😀"}`,
		`{"a":"\u2028<>&"}`, `{"a":"\\u0041","b":"\u0041"}`,
		// numbers
		`{"a":0,"b":-0,"c":255,"d":256,"e":-1,"f":2147483647,"g":2147483648,"h":-2147483648,"i":-2147483649}`,
		`{"a":9223372036854775807,"b":9223372036854775808,"c":-9223372036854775808,"d":-9223372036854775809,"e":18446744073709551616}`,
		`{"a":576460752303423487,"b":576460752303423488,"c":1152921504606846976,"d":999999999999999999,"e":1000000000000000000}`,
		`{"a":1` + strings.Repeat("0", 307) + `,"b":-9` + strings.Repeat("9", 300) + `}`,
		`{"a":1.0,"b":-0.0,"c":-0e0,"d":0e999,"e":1e3,"f":1E+3,"g":1e-3,"h":0.1,"i":123.456e-7}`,
		`{"a":12345678901234567890.5,"b":0.1000000000000000055511151231257827021181583404541015625}`,
		`{"a":1e0000000000000000000000000000000000003,"b":123456789012345678901234567890123456789e5}`,
	} {
		all = append(all, revision{Body: body})
	}
	for _, body := range []string{
		`{"a":-0e00000000000000000000000000000000001,"b":1e-9999999999999999999999999999999999999999}`,
		`{"a":1e308,"b":1.7976931348623157e308,"c":5e-324,"d":1e-400,"e":1.5e-400,"f":-1e-400,"g":1e-310,"h":1.5e-310,"i":3e-320}`,
		`{"a":1e00000000000000000000000000000000023,"b":1e000000000000000000000000000000000210}`,
		`{"a":99999999999999999999999999999999999999999999999999999e-20,"b":-18446744073709551615999999999999999e-3}`,
	} {
		if nearest {
			all = append(all, revision{Body: body})
		}
	}
	for _, times := range []int{65534, 65535} {
		all = append(all, revision{Body: `{"a":[…7]}`, Repeat: "7,", Times: times}, revision{Body: `{"a":"…"}`, Repeat: "x", Times: times + 1})
	}
	for _, parent := range []string{
		"1-967a00dff5e02add41819138abb3284d", "7-a", "1-ABC", "300-x y", "70000-é", "5000000000-0", "2-" + strings.Repeat("9", 33),
		"9007199254740993-00000000000000000000000000000000",
	} {
		all = append(all,
			revision{Parent: parent, Body: `{"v":1}`}, revision{Parent: parent, Body: `{}`, Deleted: true},
			revision{Parent: parent, ParentDeleted: true, Unmentioned: true, Body: `{"v":1}`},
		)
	}
	one := revisionAttachment{"z.bin", "application/octet-stream", "z"}
	two := revisionAttachment{"a.bin", "image/png", ""}
	for _, attachments := range [][]revisionAttachment{{one}, {two}, {one, two}, {two, one}} {
		all = append(all,
			revision{Body: `{"v":1}`, Attachments: attachments},
			revision{Body: `{"v":1}`, Parent: "3-c", Attachments: attachments, Deleted: true},
			revision{Body: `{"v":1}`, Parent: "3-c", ParentDeleted: true, Unmentioned: true, Attachments: attachments},
		)
	}
	return append(all, revision{Body: `{}`, Deleted: true}, revision{Body: `{"why":1}`, Deleted: true})
}

// names returns members with count names from the first on.
func names(first, count int) string {
	members := make([]string, count)
	for i := range members {
		members[i] = fmt.Sprintf(`"n%d":%d`, first+i, i)
	}
	return strings.Join(members, ",")
}

// editGenerator makes random edits.
type editGenerator struct {
	*rand.Rand
	nearest bool // also numbers that older releases do not convert to the nearest float
}

func (g editGenerator) revision() revision {
	r := revision{Body: g.object(4), Deleted: g.IntN(8) == 0}
	if g.IntN(3) == 0 {
		r.Parent = fmt.Sprintf("%d-%s", 1+g.IntN(1<<g.IntN(40)), []string{"a", "x-y", fmt.Sprintf("%016x%016x", g.Uint64(), g.Uint64())}[g.IntN(3)])
		r.ParentDeleted = g.IntN(3) == 0
		r.Unmentioned = r.ParentDeleted
		r.Deleted = r.Deleted && !r.ParentDeleted
	}
	for i := range g.IntN(8) - 4 {
		r.Attachments = append(r.Attachments, revisionAttachment{
			Name: fmt.Sprint(g.pick("z", "a", "é", "b/c", "😀"), i), Type: g.pick("application/octet-stream", "image/png", "x"),
			Content: strings.Repeat(g.pick("", "a", "zz"), g.IntN(20)),
		})
	}
	return r
}

func (g editGenerator) pick(texts ...string) string { return texts[g.IntN(len(texts))] }

func (g editGenerator) object(depth int) string {
	members := make([]string, g.IntN(7)*g.IntN(3))
	for i := range members {
		// Names occur twice. None begins with an underscore.
		members[i] = g.blank() + g.pick(`"a"`, `"b"`, `"\u0061"`, `"long name"`, `"é"`, fmt.Sprintf(`"%d"`, g.IntN(9))) + g.blank() + ":" + g.value(depth)
	}
	return g.blank() + "{" + strings.Join(members, ",") + g.blank() + "}" + g.blank()
}

func (g editGenerator) blank() string { return g.pick("", "", "", " ", "\n\t") }

func (g editGenerator) value(depth int) string {
	if depth == 0 {
		return g.number()
	}
	return g.blank() + []func() string{
		func() string { return g.object(depth - 1) },
		func() string { return g.array(func() string { return g.value(depth - 1) }) },
		func() string { return g.array(func() string { return strconv.Itoa(g.IntN(256 + g.IntN(2))) }) },
		g.text, g.number, g.number,
		func() string { return g.pick("true", "false", "null") },
	}[g.IntN(7)]() + g.blank()
}

func (g editGenerator) array(element func() string) string {
	elements := make([]string, g.IntN(6))
	for i := range elements {
		elements[i] = element()
	}
	return "[" + strings.Join(elements, ",") + g.blank() + "]"
}

func (g editGenerator) text() string {
	text := `"`
	for range g.IntN(6) {
		text += g.pick("a", "é", "😀", `\n`, `\"`, `\\`, `\/`, `\u0000`, `\u00e9`, `\ud83d\ude00`, "plain text", `\u001f`, "\x7f", "/")
	}
	return text + `"`
}

// number returns a number that a float can hold. CouchDB refuses others.
func (g editGenerator) number() string {
	digits := func(most int) string {
		text := strconv.Itoa(1 + g.IntN(9))
		for range g.IntN(most) {
			text += strconv.Itoa(g.IntN(10))
		}
		return text
	}
	sign := g.pick("", "-")
	kinds := 7
	if !g.nearest {
		kinds = 4
	}
	switch g.IntN(kinds) {
	case 0:
		return sign + strconv.Itoa(g.IntN(300))
	case 1:
		return sign + digits(40)
	case 2:
		return sign + digits(20) + "." + digits(25)
	case 3:
		return sign + digits(10) + g.pick("e", "E", "e+") + strconv.Itoa(g.IntN(290))
	case 4:
		return sign + digits(10) + "e-" + strconv.Itoa(g.IntN(350))
	case 5:
		return sign + digits(60) + g.pick("e", "e-", "E+") + strconv.Itoa(g.IntN(240))
	}
	return sign + "0." + digits(8) + "e" + g.pick("", "-") + strconv.Itoa(g.IntN(300))
}
