package replicator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"settee/pkg/jsontext"
	"settee/pkg/selector"
	"settee/pkg/sockopt"
)

// fields are the members of a JSON object that is being parsed. The first error in it, or in an
// object inside it, is kept. After an error the methods return values that must not be used.
type fields struct {
	prefix string // prefix of names in errors, such as "source."
	values map[string]json.RawMessage
	found  *findings
}

func newFields(values map[string]json.RawMessage) *fields {
	return &fields{values: values, found: &findings{}}
}

// findings is what was found in a definition, whatever object it is in.
type findings struct {
	err      *ParseError // the first one
	doubtful []string    // see Replication.Doubtful
}

// readFields reads the members of a definition. The last of several members with one name counts,
// as in CouchDB.
func readFields(text []byte, notObject string) (*fields, error) {
	if !validJSON(text) {
		return nil, errInvalidJSON()
	}
	if !jsontext.IsObject(text) {
		return nil, &ParseError{Reason: notObject}
	}
	f := newFields(map[string]json.RawMessage{})
	for m := range jsontext.Members(text) {
		f.values[string(m.Key)] = text[m.Value:m.End:m.End]
	}
	return f, nil
}

// errInvalidJSON has CouchDB's text, which clients know.
func errInvalidJSON() *ParseError {
	return &ParseError{Reason: "invalid UTF-8 JSON"}
}

// fail records an error in the named field.
func (f *fields) fail(name, format string, args ...any) {
	if f.found.err == nil {
		f.found.err = &ParseError{Field: f.prefix + name, Reason: fmt.Sprintf(format, args...)}
	}
}

// mustBe records that the named field is not what it must be.
func (f *fields) mustBe(name, what string) {
	f.fail(name, "parameter `%s` must be %s", f.prefix+name, what)
}

func (f *fields) err() error {
	if f.found.err == nil {
		return nil
	}
	return f.found.err
}

// text returns the value of a string, and whether it was given.
func (f *fields) text(name, what string) (string, bool) {
	raw, given := f.values[name]
	if !given {
		return "", false
	}
	var text string
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		f.mustBe(name, what)
		return "", false
	}
	return text, true
}

func (f *fields) boolean(name string) *bool {
	raw, given := f.values[name]
	if !given {
		return nil
	}
	if text := string(raw); text != "true" && text != "false" {
		f.mustBe(name, "a boolean")
		return nil
	}
	return new(raw[0] == 't')
}

func (f *fields) flag(name string) bool {
	value := f.boolean(name)
	return value != nil && *value
}

// integer returns an integer of at least minimum. One above math.MaxInt32 counts as that. Like
// CouchDB it accepts an integer written as a string, and refuses 5.0.
func (f *fields) integer(name string, minimum int64) *int {
	raw, given := f.values[name]
	if !given {
		return nil
	}
	literal := string(raw)
	if raw[0] == '"' {
		literal, _ = f.text(name, "a string")
	}
	n, err := strconv.ParseInt(literal, 10, 64)
	if err != nil && n != math.MaxInt64 || n < minimum {
		f.mustBe(name, fmt.Sprintf("an integer of at least %d", minimum))
		return nil
	}
	return new(int(min(n, math.MaxInt32)))
}

// object returns the members of an object, or nil if it was not given.
func (f *fields) object(name, what string) *fields {
	raw, given := f.values[name]
	if !given {
		return nil
	}
	inner := &fields{prefix: f.prefix + name + ".", found: f.found}
	if raw[0] != '{' || json.Unmarshal(raw, &inner.values) != nil {
		f.mustBe(name, what)
		return nil
	}
	return inner
}

// objectText returns an object as it is stored.
func (f *fields) objectText(name, what string) json.RawMessage {
	raw, given := f.values[name]
	if !given {
		return nil
	}
	if raw[0] != '{' {
		f.mustBe(name, what)
		return nil
	}
	if err := checkNumbers(raw); err != nil {
		f.fail(name, "parameter `%s` is invalid: %v", f.prefix+name, err)
		return nil
	}
	return storedJSON(raw)
}

// replicationID returns the id of the replication to cancel. It replaces spaces by +, because a +
// in a URL may have been decoded as a space.
func (f *fields) replicationID() string {
	id := ""
	for _, name := range []string{"replication_id", "_local_id", "id"} {
		text, given := f.text(name, "a replication id")
		if !given {
			continue
		}
		text = strings.ReplaceAll(text, " ", "+")
		if text == "" {
			f.mustBe(name, "a replication id")
		}
		if id != "" && id != text {
			f.fail(name, "parameters `replication_id`, `_local_id` and `id` name different replications")
		}
		id = text
	}
	return id
}

func (f *fields) createTargetParams() json.RawMessage {
	raw := f.objectText("create_target_params", "a JSON object")
	if raw == nil {
		return nil
	}
	values := f.object("create_target_params", "a JSON object").values // of several members of one name, the last
	for m := range jsontext.Members(raw) {
		if name := string(m.Key); strings.IndexByte("{[n", values[name][0]) >= 0 {
			f.fail("create_target_params."+name,
				"parameter `create_target_params` must be a JSON object of strings, numbers and booleans")
		}
	}
	return raw
}

// docIDs returns the ids decoded, sorted and without duplicates. null means not given. CouchDB
// decodes + as a space here, so a plus sign in an id has to be written as %2B.
func (f *fields) docIDs() []string {
	raw, given := f.values["doc_ids"]
	if !given || string(raw) == "null" {
		return nil
	}
	if raw[0] != '[' {
		f.mustBe("doc_ids", "an array")
		return nil
	}
	var literals []json.RawMessage
	if err := json.Unmarshal(raw, &literals); err != nil {
		f.mustBe("doc_ids", "an array")
		return nil
	}
	ids := make([]string, len(literals))
	for i, literal := range literals {
		var id string
		if literal[0] != '"' || json.Unmarshal(literal, &id) != nil {
			f.mustBe("doc_ids", "an array of strings")
			return nil
		}
		if strings.Contains(id, "+") || hasNeedlessEscape(id) {
			f.doubt("doc_ids")
		}
		if ids[i] = decodeDocID(id); !utf8.ValidString(ids[i]) {
			f.mustBe("doc_ids", "an array of document ids, which are UTF-8 once their escapes are decoded")
			return nil
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// maxDoubtful is how many fields are noted as doubtful. Listings have them.
const maxDoubtful = 10

// doubt notes a field for Replication.Doubtful.
func (f *fields) doubt(field string) {
	if len(f.found.doubtful) < maxDoubtful && !slices.Contains(f.found.doubtful, field) {
		f.found.doubtful = append(f.found.doubtful, field)
	}
}

// hasNeedlessEscape reports whether text has an escape of a character that need not be escaped anywhere (RFC 3986, section 2.3).
// It was probably written by somebody who does not escape.
func hasNeedlessEscape(text string) bool {
	for i := 0; i+2 < len(text); i++ {
		if text[i] != '%' || !isHex(text[i+1]) || !isHex(text[i+2]) {
			continue
		}
		n, _ := strconv.ParseUint(text[i+1:i+3], 16, 8) // two hex digits
		if c := byte(n); isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 {
			return true
		}
	}
	return false
}

// decodeDocID decodes percent-escapes and + in id. Invalid escapes stay.
func decodeDocID(id string) string {
	if !strings.ContainsAny(id, "%+") {
		return id
	}
	plain := make([]byte, 0, len(id))
	for i := 0; i < len(id); i++ {
		switch {
		case id[i] == '+':
			plain = append(plain, ' ')
		case id[i] == '%' && i+2 < len(id) && isHex(id[i+1]) && isHex(id[i+2]):
			code, _ := strconv.ParseUint(id[i+1:i+3], 16, 8)
			plain = append(plain, byte(code))
			i += 2
		default:
			plain = append(plain, id[i])
		}
	}
	return string(plain)
}

func (f *fields) filter() string {
	// CouchDB's text.
	const reason = "Invalid filter. Must match `ddocname/filtername`."
	raw, given := f.values["filter"]
	if !given {
		return ""
	}
	var name string
	if raw[0] != '"' || json.Unmarshal(raw, &name) != nil {
		f.fail("filter", reason)
		return ""
	}
	if ddoc, function, _ := strings.Cut(name, "/"); !strings.HasPrefix(name, "_") && (ddoc == "" || function == "") {
		f.fail("filter", reason)
	}
	f.checkFilterParams(name)
	return name
}

// ofTheFeed are parameters of a changes feed that decide what it has, so that a filter cannot have them. Those that every
// replication sets, such as since, are ignored, as CouchDB does.
var ofTheFeed = []string{"filter", "heartbeat", "last-event-id", "limit", "seq_interval"}

// checkFilterParams checks the parameters of a filter. Those of the built-in filter _view name the view.
func (f *fields) checkFilterParams(filter string) {
	params := f.object("query_params", "an object")
	if params != nil {
		for _, name := range ofTheFeed {
			if _, given := params.values[name]; given {
				params.fail(name, "parameter `query_params` must not have `%s`, which would not be one of the filter", name)
			}
		}
	}
	if filter != "_view" {
		return
	}
	const what = "`ddocname/viewname` when `filter` is `_view`"
	var view string
	if params != nil {
		view, _ = params.text("view", what)
	}
	if ddoc, name, _ := strings.Cut(view, "/"); ddoc == "" || name == "" || strings.Contains(name, "/") {
		f.mustBe("query_params.view", what)
	}
}

func (f *fields) queryParams() json.RawMessage {
	return f.objectText("query_params", "an object")
}

func (f *fields) selector() json.RawMessage {
	raw := f.objectText("selector", "a JSON object")
	if raw == nil {
		return nil
	}
	_, err := selector.Normal(f.values["selector"])
	var wrong *selector.Error
	switch {
	case !errors.As(err, &wrong):
	case wrong.Want != "":
		f.fail("selector", "parameter `selector` is invalid: %s, which must be %s", wrong.Reason, wrong.Want)
	default:
		f.fail("selector", "parameter `selector` is invalid: %s", wrong.Reason)
	}
	return raw
}

// sinceSeq accepts the sequences of all versions of CouchDB: integers, arrays and strings.
func (f *fields) sinceSeq() json.RawMessage {
	raw, given := f.values["since_seq"]
	if !given {
		return nil
	}
	if err := checkNumbers(raw); err != nil {
		f.fail("since_seq", "parameter `since_seq` is invalid: %v", err)
		return nil
	}
	if !isSequence(raw) {
		f.mustBe("since_seq", "an update sequence: a string, an array, or an integer of 0 or more")
		return nil
	}
	return storedJSON(raw)
}

func isSequence(raw json.RawMessage) bool {
	switch raw[0] {
	case '[':
		return true
	case '"':
		return string(raw) != `""`
	case '-':
		return string(raw) == "-0"
	}
	return '0' <= raw[0] && raw[0] <= '9' && !bytes.ContainsAny(raw, ".eE")
}

func (f *fields) socketOptions() *sockopt.Options {
	text, given := f.text("socket_options", "a string")
	if !given {
		return nil
	}
	options, err := sockopt.Parse(text)
	if err != nil {
		f.fail("socket_options", "parameter `socket_options` %v", err)
		return nil
	}
	return &options
}

func (f *fields) userCtx() *UserCtx {
	ctx := f.object("user_ctx", "an object with `name` and `roles`")
	if ctx == nil {
		return nil
	}
	user := &UserCtx{Roles: []string{}}
	if string(ctx.values["name"]) != "null" {
		if name, given := ctx.text("name", "a string or null"); given {
			user.Name = &name
		}
	}
	if raw, given := ctx.values["roles"]; given {
		roles, ok := jsontext.Strings(raw)
		if !ok {
			ctx.mustBe("roles", "an array of strings")
		}
		user.Roles = append(user.Roles, roles...)
	}
	return user
}

func (f *fields) owner() *string {
	if string(f.values["owner"]) == "null" {
		return nil
	}
	name, given := f.text("owner", "a string or null")
	if !given {
		return nil
	}
	return &name
}

// proxies returns the proxies of the source and of the target. An empty string means not given.
func (f *fields) proxies(options ParseOptions) (source, target string) {
	both := f.proxy("proxy", options)
	source = f.proxy("source_proxy", options)
	target = f.proxy("target_proxy", options)
	if both == "" {
		return source, target
	}
	if source != "" {
		f.fail("proxy", "`proxy` is mutually exclusive with `source_proxy`")
	}
	if target != "" {
		f.fail("proxy", "`proxy` is mutually exclusive with `target_proxy`")
	}
	return both, both
}

// proxy returns a URL that net/url can parse, with any user name and password.
func (f *fields) proxy(name string, options ParseOptions) string {
	protocols := options.proxyProtocols()
	text, given := f.text(name, "a URL with protocol "+orList(protocols))
	if !given || text == "" {
		return ""
	}
	l, err := splitURL(text)
	if err != nil {
		f.fail(name, "parameter `%s` has an invalid url: %v", name, err)
		return ""
	}
	if !slices.Contains(protocols, l.scheme) {
		f.mustBe(name, "a URL with protocol "+orList(protocols))
		return ""
	}
	proxy := url.URL{Scheme: l.scheme, Host: l.hostPort()}
	if l.userinfo != "" {
		user, password, _ := strings.Cut(l.userinfo, ":")
		proxy.User = url.UserPassword(unescape(user), unescape(password))
	}
	return proxy.String()
}

func orList(words []string) string { return listed(words, " or ") }

// listed returns words as a list whose last word follows the conjunction.
func listed(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + conjunction + words[last]
}
