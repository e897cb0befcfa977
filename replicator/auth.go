package replicator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

// authKinds are the kinds of credentials that the object `auth` of an endpoint may have, in the order in which they count. They
// decide how each is read, which members are secret, and how requests are signed.
var authKinds = []authKind{
	{name: "basic", members: []authMember{{name: "username"}, {name: "password", secret: true}}},
	{name: "ibm", within: "iam", members: []authMember{apiKey}, token: apiKeyToken}, // CouchDB 3.5.3; within iam: IBM's libraries
	{name: "iam", as: "ibm", members: []authMember{apiKey}, token: apiKeyToken},     // Cloudant's older form
	{name: "oauth2", members: []authMember{
		{name: "token_url", read: readTokenURL}, {name: "client_id", read: readFilled}, {name: "client_secret", read: readFilled, secret: true},
		{name: "scopes", read: readScopes, optional: true}, {name: "audience", read: readFilled, optional: true},
	}, token: clientToken},
}

// apiKey is the member with a key of IBM Cloud.
var apiKey = authMember{name: "api_key", read: readFilled, secret: true}

// authKind is a kind of credentials: the member of that name, an object.
type authKind struct {
	name    string
	as      string // the kind that it is another spelling of; "" for none
	within  string // the member whose object may have the members instead; "" for none
	members []authMember
	// token returns how access tokens are requested, with which requests are signed. nil means that they are signed with the
	// username and the password, or with a session.
	token func(members map[string]string) *clientcredentials.Config
}

// authMember is a member of the object of a kind.
type authMember struct {
	name     string
	secret   bool // it is masked wherever an endpoint is shown
	optional bool
	// read returns the value as it is kept, or why it is refused: what it must be. nil accepts every string.
	read func(raw json.RawMessage, options ParseOptions) (value, mustBe string)
}

// Auth is how an endpoint's access tokens are got. Printing it never shows a secret.
type Auth struct {
	Kind    string            `json:"kind"`    // the member of `auth`
	Members map[string]string `json:"members"` // of its object; scopes are separated by spaces
}

// kind returns the kind of credentials.
func (a Auth) kind() (kind authKind) {
	if i := slices.IndexFunc(authKinds, func(k authKind) bool { return k.name == a.Kind }); i >= 0 {
		kind = authKinds[i]
	}
	return kind
}

// shown returns the members with masks for secrets. It masks all of a kind that this release does not know.
func (a Auth) shown() map[string]string {
	shown := map[string]string{}
	for name := range a.Members {
		shown[name] = masked
	}
	for _, m := range a.kind().members {
		if value, given := a.Members[m.name]; given && !m.secret {
			shown[m.name] = value
		}
	}
	return shown
}

// secrets returns the secret members.
func (a Auth) secrets() (list []string) {
	for _, m := range a.kind().members {
		if m.secret {
			list = append(list, a.Members[m.name])
		}
	}
	return list
}

// Equal reports whether a and other are the same credentials. Either may be nil.
func (a *Auth) Equal(other *Auth) bool {
	if a == nil || other == nil {
		return a == other
	}
	return a.Kind == other.Kind && maps.Equal(a.Members, other.Members)
}

// String returns the kind.
func (a Auth) String() string { return a.Kind }

// Format writes String for every verb.
func (a Auth) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, a.String(), fmt.Sprintf("replicator.Auth(%q)", a.String()))
}

// MarshalJSON writes the credentials without secrets.
func (a Auth) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedAuth{a.Kind, a.shown()})
}

// Token returns how access tokens for the endpoint are requested, or nil if its requests have none. ibm is the URL of the token
// server of IBM Cloud.
func (e Endpoint) Token(ibm string) *clientcredentials.Config {
	if e.Auth == nil {
		return nil
	}
	kind := e.Auth.kind()
	if kind.token == nil { // a newer release has stored it
		return &clientcredentials.Config{} // couch.Open refuses it
	}
	token := kind.token(e.Auth.Members)
	if token.TokenURL == "" {
		token.TokenURL = ibm
	}
	return token
}

// clientToken returns the request of a client for itself (RFC 6749, section 4.4).
func clientToken(members map[string]string) *clientcredentials.Config {
	token := &clientcredentials.Config{
		TokenURL: members["token_url"], ClientID: members["client_id"], ClientSecret: members["client_secret"],
		Scopes: strings.Fields(members["scopes"]),
	}
	if audience := members["audience"]; audience != "" {
		token.EndpointParams = url.Values{"audience": {audience}}
	}
	return token
}

// apiKeyToken returns the request for a token of IBM Cloud, whose server the settings name. CouchDB makes the same one.
func apiKeyToken(members map[string]string) *clientcredentials.Config {
	return &clientcredentials.Config{AuthStyle: oauth2.AuthStyleInParams, EndpointParams: url.Values{
		"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "response_type": {"cloud_iam"}, "apikey": {members[apiKey.name]},
	}}
}

// readFilled accepts a string that is not empty.
func readFilled(raw json.RawMessage, _ ParseOptions) (value, mustBe string) {
	if json.Unmarshal(raw, &value) != nil || value == "" {
		return "", "a string that is not empty"
	}
	return value, ""
}

// readScopes accepts a list of scopes, or a string in which they are separated by spaces.
func readScopes(raw json.RawMessage, _ ParseOptions) (value, mustBe string) {
	var list []string
	if json.Unmarshal(raw, &value) == nil {
		list = []string{value}
	} else if json.Unmarshal(raw, &list) != nil {
		return "", "an array of strings"
	}
	return strings.Join(strings.Fields(strings.Join(list, " ")), " "), ""
}

// readTokenURL accepts the URL of a token server. The settings allow the same protocols as for endpoints.
func readTokenURL(raw json.RawMessage, options ParseOptions) (value, mustBe string) {
	mustBe = "a URL with protocol " + orList(options.endpointProtocols()) + ", without a user and a query"
	if json.Unmarshal(raw, &value) != nil || !options.tokenURL(value) {
		return "", mustBe
	}
	return value, ""
}

// tokenURL reports whether a URL may be that of a token server.
func (o ParseOptions) tokenURL(text string) bool {
	l, err := splitURL(text)
	_, urlErr := url.Parse(text)
	return err == nil && urlErr == nil && l.userinfo == "" && !strings.ContainsAny(l.path, "?#") &&
		!strings.Contains(text, "@") && slices.Contains(o.endpointProtocols(), l.scheme)
}

// maxAuthName is how many bytes of the name of a member that is not used are shown.
const maxAuthName = 64

// auth returns the credentials of the object auth: a user and a password, or how tokens are got, or neither. It doubts each
// member that is not used: one that this release does not know, or a second kind.
func (f *fields) auth(options ParseOptions) (basic *credentials, token *Auth) {
	auth := f.object("auth", "an object")
	if auth == nil {
		return nil, nil
	}
	used := map[string]bool{}
	for _, kind := range authKinds {
		given := auth.object(kind.name, kind.want())
		if given == nil {
			continue
		}
		members := kind.read(given, options)
		switch {
		case len(used) > 0:
			continue
		case kind.token != nil:
			token = &Auth{cmp.Or(kind.as, kind.name), members}
		default:
			basic = &credentials{username: members["username"], password: members["password"], written: members["username"]}
		}
		used[kind.name] = true
	}
	auth.doubtOthers(used)
	return basic, token
}

// read returns the members of the object of a kind.
func (k authKind) read(given *fields, options ParseOptions) map[string]string {
	if _, direct := given.values[k.members[0].name]; !direct && k.within != "" {
		if inner := given.object(k.within, k.want()); inner != nil {
			given.doubtOthers(map[string]bool{k.within: true})
			given = inner
		}
	}
	members, known := map[string]string{}, map[string]bool{}
	for _, m := range k.members {
		known[m.name] = true
		raw, has := given.values[m.name]
		if !has && m.optional {
			continue
		}
		value, mustBe := m.value(raw, options)
		if mustBe != "" {
			given.mustBe(m.name, mustBe)
		}
		members[m.name] = value
	}
	given.doubtOthers(known)
	return members
}

// value reads a member. raw is nil if it was not given.
func (m authMember) value(raw json.RawMessage, options ParseOptions) (value, mustBe string) {
	if m.read != nil {
		return m.read(raw, options)
	}
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &value) != nil {
		return "", "a string"
	}
	return value, ""
}

// want says what the object of a kind must be.
func (k authKind) want() string {
	var names []string
	for _, m := range k.members {
		if !m.optional {
			names = append(names, "`"+m.name+"`")
		}
	}
	return "an object with " + listed(names, " and ")
}

// doubtOthers doubts the members that are not among the known ones.
func (f *fields) doubtOthers(known map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !known[name] {
			f.doubt(f.prefix + jsontext.Cut(name, maxAuthName))
		}
	}
}

// unusedAuth returns the warning about a member of `auth` that is not used.
func unusedAuth(field string) string {
	names := make([]string, len(authKinds))
	for i, kind := range authKinds {
		names[i] = "`" + kind.name + "`"
	}
	return "`" + field + "` is not used: the credentials that are known in `auth` are " + strings.Join(names, ", ") + ", and the first of them counts"
}
