//go:build fdb

package config_test

import _ "settee/pkg/kv/fdbkv" // the tests run there too, on the cluster that kvtest.Cluster opens
