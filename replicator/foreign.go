package replicator

import (
	"encoding/json"
	"strings"
)

// DocumentOwner returns the owner of a document of a replicator database; nil means the anonymous
// user. given is false if the document has no valid owner.
func DocumentOwner(doc []byte) (owner *string, given bool) {
	text, err := splitObject(doc)
	if err != nil {
		return nil, false
	}
	f := text.fields("owner")
	owner = f.owner()
	_, given = f.values["owner"]
	return owner, given && f.err() == nil
}

// OwnedBy reports whether the owner of a document is user; nil means the anonymous user.
func OwnedBy(doc []byte, user *string) bool {
	owner, given := DocumentOwner(doc)
	return given && sameUser(owner, user)
}

// StripDocument returns a document as users other than its owner see it. Endpoints and proxies
// are URLs without user names and passwords, and endpoints have no other members. The parameters
// of the filter keep their names, with masked values. Every other member is kept.
func StripDocument(doc []byte) ([]byte, error) {
	text, err := splitObject(doc)
	if err != nil {
		return nil, err
	}
	names := []string{"source", "target", "proxy", "source_proxy", "target_proxy"}
	values := text.fields(names...).values
	var edits []edit
	for _, name := range names {
		if raw, given := values[name]; given {
			edits = append(edits, edit{name, stripEndpoint(raw)})
		}
	}
	if raw, given := text.fields("query_params").values["query_params"]; given {
		edits = append(edits, edit{"query_params", stripParams(raw)})
	}
	return text.edited(edits), nil
}

// stripParams masks the parameters of a filter. Parameters that are not an object, which a failed
// document may have, become null.
func stripParams(raw json.RawMessage) json.RawMessage {
	params, err := splitObject(raw)
	if err != nil {
		return json.RawMessage("null")
	}
	var edits []edit
	for name := range params.last {
		edits = append(edits, edit{name, encodeJSON(masked)})
	}
	return params.edited(edits)
}

// stripEndpoint returns an endpoint without secrets. A value that is neither a string nor an
// object, which a failed document may have, becomes null.
func stripEndpoint(raw json.RawMessage) json.RawMessage {
	var url string
	if json.Unmarshal(raw, &url) == nil && raw[0] == '"' {
		return encodeJSON(stripURL(url))
	}
	object, err := splitObject(raw)
	if err != nil {
		return json.RawMessage("null")
	}
	given, found := object.fields("url").values["url"]
	if !found || json.Unmarshal(given, &url) != nil {
		return json.RawMessage("{}")
	}
	return json.RawMessage(`{"url":` + string(encodeJSON(stripURL(url))) + "}")
}

// stripURL returns a URL without user name and password. It masks the whole URL if that is
// invalid or has an @ in its path, as after a password with a slash.
func stripURL(text string) string {
	if text == "" {
		return ""
	}
	l, err := splitURL(text)
	if plain := l.String(); err == nil && !strings.Contains(plain, "@") {
		return plain
	}
	return masked
}
