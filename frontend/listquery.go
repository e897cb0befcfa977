package frontend

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"settee/pkg/docstore"
)

// listQuery is what a request says of a listing, in its URL and in its body.
type listQuery struct {
	*query
	keys *jsonList // of the body
}

// listParameters are the parameters of a listing that a body may have too, and whether they
// are JSON in a URL.
var listParameters = map[string]bool{
	"key": true, "startkey": true, "endkey": true, "descending": false, "inclusive_end": false, "limit": false, "skip": false,
	"include_docs": false, "conflicts": false, "attachments": false, "att_encoding_info": false, "update_seq": false,
}

// listAliases are other names of parameters.
var listAliases = map[string]string{"start_key": "startkey", "end_key": "endkey"}

func newListQuery(r *http.Request) *listQuery {
	q := &listQuery{query: newQuery(r)}
	for alias, name := range listAliases {
		if q.has(alias) && !q.has(name) {
			q.values[name] = q.values[alias]
		}
	}
	if text := q.text("keys"); q.has("keys") {
		var ok bool
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			q.refuse("Invalid value for parameter `keys`: it must be a list of ids, as JSON")
		} else if q.keys, ok = newJSONList([]byte(text)); !ok {
			q.fail(badRequest("`keys` parameter must be an array."))
		}
	}
	return q
}

func (q *listQuery) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// addBody adds what a JSON object says, where the URL says nothing. The values of a query
// are texts, and so are these.
func (q *listQuery) addBody(object []byte) {
	inURL := map[string]bool{}
	for name := range q.values {
		inURL[name] = true
	}
	_ = eachMember(object, func(name string, value []byte) error { // valid
		if alias, found := listAliases[name]; found {
			name = alias
		}
		isJSON, known := listParameters[name]
		switch {
		case inURL[name]:
		case name == "keys":
			var ok bool
			if q.keys, ok = newJSONList(value); !ok && string(value) != "null" {
				q.fail(badRequest("`keys` body member must be an array."))
			}
		case known:
			text, isString := jsonString(value)
			if isJSON || !isString {
				text = string(value)
			}
			q.values.Set(name, text)
		}
		return nil
	})
}

// listing reads the parameters.
func (q *listQuery) listing(db *docstore.Database, of namespace) (*listing, error) {
	l := &listing{
		db: db, of: of, keys: q.keys,
		show:      shown{encodings: q.flag("att_encoding_info", false)},
		documents: q.flag("include_docs", false),
		contents:  q.flag("attachments", false),
		conflicts: q.flag("conflicts", false),
		updateSeq: q.flag("update_seq", false),
		skip:      q.count("skip", 0),
		limit:     q.count("limit", unknown),
	}
	l.within.Descending = q.flag("descending", false)
	l.within.ExclusiveEnd = !q.flag("inclusive_end", true)
	start, hasStart := q.bound("startkey")
	end, hasEnd := q.bound("endkey")
	if q.err != nil {
		return nil, q.err
	}
	if l.keys != nil && l.keys.len() > 0 && (hasStart || hasEnd) {
		q.refuse("`keys` is incompatible with `key`, `start_key` and `end_key`")
		return nil, q.err
	}
	l.bounds(start, hasStart, end, hasEnd)
	return l, nil
}

// bound reads an end of a range of ids. As in CouchDB what is no string comes before all
// ids, as the empty one does.
func (q *listQuery) bound(name string) (id string, found bool) {
	if !q.has(name) {
		name = "key"
	}
	var value any
	if !q.json(name, "an id", &value) {
		return "", false
	}
	id, _ = value.(string)
	return id, true
}

// bounds sets the range of ids, within those of the namespace.
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
