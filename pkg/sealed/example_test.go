package sealed_test

import (
	"errors"
	"fmt"

	"settee/pkg/sealed"
)

// A value opens only at its place.
func Example() {
	line, err := sealed.NewLine("2026-02")
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := sealed.Parse("keys", []byte(line+"\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	value := keys.Seal([]byte("secret"), "users", "ann")
	fmt.Println(keys.KeyID(value))

	text, err := keys.Open(value, "users", "ann")
	fmt.Println(string(text), err)

	_, err = keys.Open(value, "users", "bob")
	fmt.Println(errors.Is(err, sealed.ErrNotAuthentic))
	// Output:
	// 2026-02
	// secret <nil>
	// true
}
