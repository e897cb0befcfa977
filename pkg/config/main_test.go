package config_test

import (
	"testing"

	"go.uber.org/goleak"

	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }
