//go:build fdb

package main

// This engine needs FoundationDB's C library.
import _ "settee/pkg/kv/fdbkv"
