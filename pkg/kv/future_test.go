package kv_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func TestFutures(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	failed := kv.Func[string](func() (string, error) { return "", refused })
	parse := func(text string) kv.Future[int] { return kv.Map(kv.Known(text), strconv.Atoi) }

	n, err := parse("7").Await()
	require.NoError(t, err)
	require.Equal(t, 7, n)
	_, err = kv.Map(failed, func(string) (int, error) { panic("there is no result") }).Await()
	require.ErrorIs(t, err, refused)

	all, err := kv.All([]kv.Future[int]{parse("1"), parse("2")})
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, all)
	_, err = kv.All([]kv.Future[int]{parse("1"), parse("one"), parse("2")})
	require.ErrorIs(t, err, strconv.ErrSyntax)
}
