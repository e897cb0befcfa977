package redact_test

import (
	"fmt"

	"settee/pkg/redact"
)

func ExampleText() {
	fmt.Println(redact.Text(`Get "http://ann:secret@couch.example.org/db": connection refused`))
	// Output:
	// Get "http://ann:*****@couch.example.org/db": connection refused
}
