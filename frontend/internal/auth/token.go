package auth

import (
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"settee/pkg/redact"
)

// Tokens says which JSON web tokens are accepted. It is made for each request from the current
// configuration.
type Tokens struct {
	// Keys are the keys of [jwt_keys] by KIND:ID: a []byte for hmac, a public key for rsa, ec and
	// ed. Tokens without a key id use the id _default.
	Keys map[string]any `json:"-"`
	// Required are the claims that a token must have.
	Required []Claim
	// RolesPath is the path of the roles in the claims. RolesName is their claim if there is no
	// path. Roles are a list, or a text separated by commas.
	RolesPath []string
	RolesName string
}

// Format writes a constant for every verb, so that no key is printed.
func (t Tokens) Format(f fmt.State, verb rune) { redact.Format(f, verb, "tokens", "auth.Tokens(...)") }

// Claim is a claim that a token must have, with any value if Value is empty.
type Claim struct{ Name, Value string }

// TokenError says why a token is refused.
type TokenError struct {
	// Expired reports whether the token is valid at another time. CouchDB then responds with 401,
	// otherwise with 400.
	Expired bool
	Reason  string
}

// Error returns the reason.
func (e *TokenError) Error() string { return e.Reason }

func badToken(reason string) error { return &TokenError{Reason: reason} }

// maxToken is the most bytes of a token.
const maxToken = 16 << 10

// algorithms are the accepted signature algorithms and the kinds of their keys.
var algorithms = map[string]string{
	"HS256": "hmac", "HS384": "hmac", "HS512": "hmac",
	"RS256": "rsa", "RS384": "rsa", "RS512": "rsa",
	"ES256": "ec", "ES384": "ec", "ES512": "ec",
	"EdDSA": "ed",
}

// ParseBearer returns the token of a header.
func ParseBearer(header string) (token string, given bool) { return cutScheme(header, "Bearer") }

// Verify returns the user of a token. The error is a *TokenError.
func (t *Tokens) Verify(token string, now time.Time) (User, error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return User{}, badToken("Malformed authentication token")
	}
	parser := jwt.NewParser(jwt.WithoutClaimsValidation(), jwt.WithJSONNumber(), jwt.WithStrictDecoding())
	claims := jwt.MapClaims{}
	parsed, err := parser.ParseWithClaims(token, claims, t.key)
	if err != nil {
		return User{}, tokenFailure(err)
	}
	if err := t.check(parsed.Header, claims, now); err != nil {
		return User{}, err
	}
	name, _ := claims["sub"].(string)
	if name == "" {
		return User{}, &TokenError{Expired: true, Reason: "Token missing sub claim."}
	}
	roles, err := t.roles(claims)
	return User{Name: name, Roles: roles}, err
}

func tokenFailure(err error) error {
	var own *TokenError
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return badToken("Bad signature in authentication token")
	}
	return badToken("Malformed authentication token")
}

// key returns the key of a token. The key is of the kind of the token's algorithm, so that a
// public key is never used as a secret.
func (t *Tokens) key(token *jwt.Token) (any, error) {
	if _, given := token.Header["crit"]; given { // RFC 7515, section 4.1.11: no extensions are supported
		return nil, badToken("Invalid crit header parameter")
	}
	algorithm, _ := token.Header["alg"].(string)
	kind, known := algorithms[algorithm]
	if !known {
		return nil, badToken("Invalid alg header parameter")
	}
	id := "_default"
	if given, has := token.Header["kid"]; has {
		var isText bool
		if id, isText = given.(string); !isText {
			return nil, badToken("Unknown kid")
		}
	}
	key, found := t.Keys[kind+":"+id]
	if !found {
		return nil, badToken("Unknown kid")
	}
	method, isEC := token.Method.(*jwt.SigningMethodECDSA)
	if public, ok := key.(*ecdsa.PublicKey); isEC && ok && public.Params().BitSize != method.CurveBits {
		return nil, badToken("Invalid alg header parameter") // RFC 7518, section 3.4
	}
	return key, nil
}

// check checks the claims, and those in the header (alg, kid, typ). The times are checked even if
// they are not required.
func (t *Tokens) check(header map[string]any, claims jwt.MapClaims, now time.Time) error {
	for _, required := range t.Required {
		value, given := claims[required.Name]
		switch required.Name {
		case "alg", "kid", "typ":
			value, given = header[required.Name]
		}
		if !given {
			return badToken(fmt.Sprintf("Missing %s claim", required.Name))
		}
		if required.Value != "" && value != required.Value {
			return badToken(fmt.Sprintf("Invalid %s claim", required.Name))
		}
	}
	for _, name := range []string{"exp", "nbf", "iat"} {
		value, given := claims[name]
		if !given {
			continue
		}
		at, ok := claimTime(value)
		switch {
		case !ok:
			return badToken(fmt.Sprintf("Invalid %s claim", name))
		case name == "exp" && !now.Before(at):
			return &TokenError{Expired: true, Reason: "exp not in future"}
		case name == "nbf" && at.After(now):
			return &TokenError{Expired: true, Reason: "nbf not in past"}
		}
	}
	return nil
}

func claimTime(value any) (time.Time, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return time.Time{}, false
	}
	seconds, err := number.Float64()
	if err != nil || seconds < 0 || seconds > 1<<40 {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}

// roles returns the roles in a token, which may be none.
func (t *Tokens) roles(claims jwt.MapClaims) ([]string, error) {
	value := any(map[string]any(claims))
	path := t.RolesPath
	if len(path) == 0 {
		path = []string{t.RolesName}
	}
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	var roles []string
	switch value := value.(type) {
	case nil:
	case string:
		for role := range strings.SplitSeq(value, ",") {
			if role = strings.TrimSpace(role); role != "" {
				roles = append(roles, role)
			}
		}
	case []any:
		for _, element := range value {
			role, ok := element.(string)
			if !ok {
				return nil, badToken("Malformed token")
			}
			roles = append(roles, role)
		}
	default:
		return nil, badToken("Malformed token")
	}
	return roles, nil
}

// claimSyntax matches an element of CouchDB's list of claims: exp, {iss, "name"}.
var claimSyntax = regexp.MustCompile(`^\s*(?:([a-z]+)|\{\s*([a-z]+)\s*,\s*"([^"]+)"\s*\})\s*(?:,|$)`)

// ParseClaims parses a list of required claims, such as exp, {iss, "name"}.
func ParseClaims(text string) (claims []Claim, ok bool) {
	for strings.TrimSpace(text) != "" {
		m := claimSyntax.FindStringSubmatch(text)
		if m == nil {
			return nil, false
		}
		claims = append(claims, Claim{m[1] + m[2], m[3]})
		text = text[len(m[0]):]
	}
	return claims, true
}
