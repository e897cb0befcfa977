package replicator

import (
	"encoding/json"
	"slices"
	"strings"
)

// DocumentOwner returns the owner of a document of a replicator database. It is nil for one that
// is anonymous; given is false for one that says nothing of it, or nothing that could be meant.
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

// OwnedBy reports whether a document says that it is a user's, nil being an anonymous one.
func OwnedBy(doc []byte, user *string) bool {
	owner, given := DocumentOwner(doc)
	return given && sameUser(owner, user)
}

// CheckUserCtx returns a *ParseError if a document asks to be replicated on behalf of another
// user than the one who writes it, or with roles that the user does not have. Administrators may
// ask for that.
func CheckUserCtx(doc []byte, user *string, roles []string) error {
	text, err := splitObject(doc)
	if err != nil {
		return err
	}
	f := text.fields("user_ctx")
	ctx := f.userCtx()
	if err := f.err(); err != nil || ctx == nil {
		return err
	}
	if !sameUser(ctx.Name, user) {
		return &ParseError{Field: "user_ctx", Reason: "`user_ctx.name` can only be your own name"}
	}
	for _, role := range ctx.Roles {
		if !slices.Contains(roles, role) {
			return &ParseError{Field: "user_ctx", Reason: "`user_ctx.roles` can only have roles of your own"}
		}
	}
	return nil
}

// StripDocument returns a document of a replicator database as users see it whose it is not: its
// endpoints and proxies are URLs without user names and passwords, and nothing else that an
// endpoint has is left. Of the parameters of its filter the names are. Every other member is as it
// was.
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

// stripParams masks the parameters of a filter. What are none, as a document may have that failed,
// are null.
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

// stripEndpoint returns what others may see of an endpoint. One that is neither a text nor an
// object, as a document may have that failed, is null.
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

// stripURL returns a URL without user name and password. Of one that cannot be read, or that has
// an @ in its path, as where a password had a slash, nothing is left.
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
