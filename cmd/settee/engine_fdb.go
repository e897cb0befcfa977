//go:build fdb

package main

// The engine that needs FoundationDB's C library.
import _ "settee/pkg/kv/fdbkv"
