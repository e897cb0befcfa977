package replicator

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each kind of fault has a text for people.
func TestFaultTexts(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	require.NoError(t, err)
	declared := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Fault") {
			return true
		}
		declared++
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		assert.NotEmpty(t, faultTexts[FaultCode(code)], code)
		return true
	})
	assert.Len(t, faultTexts, declared)
}

// A text for people names the end and the host once, and says what the server says.
func TestMessagesOfFaults(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]*Fault{
		"source a:5984: connection refused": {Code: FaultConnectRefused, Side: SideSource, Host: "a:5984"},
		"target b: the user or the password is wrong, or missing: Name or password is incorrect.": {
			Code: FaultUnauthorized, Side: SideTarget, Host: "b", Status: 401, Said: "Name or password is incorrect."},
		"the database does not exist":                                        {Code: FaultDatabaseMissing, Said: "Database does not exist."},
		"source a: answers with a server error, 503, and asks to wait: full": {Code: FaultServerError, Side: SideSource, Host: "a", Status: 503, Said: "full", RetryAfter: 4},
		"source a: answers with a server error, 500: full":                   {Code: FaultServerError, Side: SideSource, Host: "a", Status: 500, Said: "full"},
		"target: refuses documents":                                          {Code: FaultDocumentRefused, Side: SideTarget},
		"x: no":                                                              {Code: "newer"},
	} {
		told := f.told("x: no")
		assert.Equal(t, want, told.Message)
		assert.Equal(t, "x: no", told.Text)
	}
}
