package replay

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/base/podjson"
	"jettison/internal/base/strict"
)

// decodeOptions rejects unknown fields and accepts times with any fraction of a second.
var decodeOptions = json.JoinOptions(json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(readTime), json.UnmarshalFromFunc(readMicroTime),
		json.UnmarshalFromFunc(podjson.ReadQuantity),
	)))

func readTime(d *jsontext.Decoder, out *metav1.Time) (err error) {
	out.Time, err = decodeTime(d)
	return err
}

func readMicroTime(d *jsontext.Decoder, out *metav1.MicroTime) (err error) {
	out.Time, err = decodeTime(d)
	return err
}

// decodeTime reads a Kubernetes time; null is the zero time.
func decodeTime(d *jsontext.Decoder) (time.Time, error) {
	t, err := d.ReadToken()
	switch {
	case err != nil:
		return time.Time{}, err
	case t.Kind() == 'n':
		return time.Time{}, nil
	case t.Kind() != '"':
		return time.Time{}, fmt.Errorf("want a time, got %s", strict.Kind(t.Kind()))
	}
	return strict.ParseTime(t.String())
}
