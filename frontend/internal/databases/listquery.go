package databases

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// listQuery has the parameters of a listing, from the URL and the body.
type listQuery struct {
	*web.Query
	keys *jsonList // nil: the listing is of a range
}

// listParameters are the parameters that a body may have, too. The value is true if the parameter is JSON in a URL.
var listParameters = map[string]bool{
	"key": true, "startkey": true, "endkey": true, "startkey_docid": false, "endkey_docid": false, "descending": false, "inclusive_end": false, "limit": false, "skip": false,
	"include_docs": false, "conflicts": false, "attachments": false, "att_encoding_info": false, "update_seq": false,
}

// listAliases are other names of parameters.
var listAliases = map[string]string{
	"start_key": "startkey", "end_key": "endkey", "start_key_doc_id": "startkey_docid", "end_key_doc_id": "endkey_docid",
}

func newListQuery(r *http.Request) *listQuery {
	q := &listQuery{Query: web.NewQuery(r)}
	for alias, name := range listAliases {
		if q.Has(alias) && !q.Has(name) {
			q.Values[name] = q.Values[alias]
		}
	}
	if text := q.Text("keys"); q.Has("keys") {
		var ok bool
		if !jsontext.Valid([]byte(text)) {
			q.Fail(web.BadRequest("Invalid value for parameter `keys`: it must be a list of ids, as JSON"))
		} else if q.keys, ok = newJSONList([]byte(text)); !ok {
			q.Fail(web.BadRequest("`keys` parameter must be an array."))
		}
	}
	return q
}

// addBody adds the members of a JSON object as parameters. Those of the URL precede them.
func (q *listQuery) addBody(object []byte) {
	inURL := map[string]bool{}
	for name := range q.Values {
		inURL[name] = true
	}
	for m := range jsontext.Members(object) {
		name, value := string(m.Key), object[m.Value:m.End]
		if alias, found := listAliases[name]; found {
			name = alias
		}
		isJSON, known := listParameters[name]
		switch {
		case inURL[name]:
		case name == "keys":
			var ok bool
			if q.keys, ok = newJSONList(value); !ok && string(value) != "null" {
				q.Fail(web.BadRequest("`keys` body member must be an array."))
			}
		case (name == "limit" || name == "skip") && value[0] == '"':
			q.Refuse("Invalid value for integer parameter `%s`: it must be a whole number of at least 0", name)
		case known:
			text, isString := jsontext.String(value)
			if isJSON || !isString {
				text = string(value)
			}
			q.Values.Set(name, text)
		}
	}
}

// listing returns the listing that the parameters ask for.
func (q *listQuery) listing(db *docstore.Database, of namespace) (*listing, error) {
	l := &listing{
		db: db, of: of, keys: q.keys,
		show:      shown{encodings: q.Flag("att_encoding_info", false)},
		documents: q.Flag("include_docs", false),
		contents:  q.Flag("attachments", false),
		conflicts: q.Flag("conflicts", false),
		updateSeq: q.Flag("update_seq", false),
		skip:      q.Count("skip", 0),
		limit:     q.Count("limit", unknown),
	}
	l.within.Descending = q.Flag("descending", false)
	l.within.ExclusiveEnd = !q.Flag("inclusive_end", true)
	start, hasStart := q.bound("startkey", "startkey_docid")
	end, hasEnd := q.bound("endkey", "endkey_docid")
	if l.keys != nil && l.keys.len() > 0 && (q.Has("startkey") || q.Has("endkey") || q.Has("key")) {
		q.Refuse("`keys` is incompatible with `key`, `start_key` and `end_key`")
	}
	q.refuseViews()
	if q.Err != nil {
		return nil, q.Err
	}
	l.bounds(start, hasStart, end, hasEnd)
	return l, nil
}

// bound reads one end of a range of ids. As in CouchDB a value that is no string sorts before all ids, as the empty
// id does, and plain is a parameter with an id that counts if there is no JSON.
func (q *listQuery) bound(name, plain string) (id string, found bool) {
	switch {
	case q.Has(name):
	case q.Has("key"):
		name = "key"
	case q.Has(plain):
		return q.Text(plain), true
	default:
		return "", false
	}
	var value any
	if err := json.Unmarshal([]byte(q.Text(name)), &value); err != nil {
		q.Fail(web.BadRequest(fmt.Sprintf("Invalid value for parameter `%s`: it must be an id, as JSON", name)))
		return "", false
	}
	id, _ = value.(string)
	return id, true
}

// refuseViews refuses the parameters of views that CouchDB refuses for listings, too.
func (q *listQuery) refuseViews() {
	for _, name := range []string{"group", "group_level"} {
		if text := q.Text(name); q.Has(name) && text != "false" && text != "0" {
			q.Refuse("Invalid use of grouping on a map view: `%s`", name)
		}
	}
	if q.Switch("reduce") {
		q.Refuse("Reduce is invalid for map-only views.")
	}
	for name, known := range map[string][]string{"stale": {"ok", "update_after"}, "update": {"true", "false", "lazy"}} {
		if q.Has(name) && !slices.Contains(known, q.Text(name)) {
			q.Refuse("Invalid value for `%s`: it must be %s", name, strings.Join(known, " or "))
		}
	}
}

// bounds sets the range of ids, within the namespace.
func (l *listing) bounds(start string, hasStart bool, end string, hasEnd bool) {
	low, high := start, end
	if l.within.Descending {
		low, high = end, start
		hasStart, hasEnd = hasEnd, hasStart
	}
	l.none = hasEnd && high <= l.of.first || hasStart && hasEnd && low > high || l.of.last != "" && low >= l.of.last
	low = max(low, l.of.first)
	if !hasEnd || l.of.last != "" && high > l.of.last {
		high = l.of.last
	}
	l.within.Start, l.within.End = low, high
	if l.within.Descending {
		l.within.Start, l.within.End = high, low
	}
}
