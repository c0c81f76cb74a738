package replay

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/jsonwords"
	"jettison/internal/podstore/podjson"
)

// reading is how frames are read: strictly, and times of either kind with any fraction of a second.
var reading = json.JoinOptions(json.RejectUnknownMembers(true), json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(readTime), json.UnmarshalFromFunc(readMicroTime), json.UnmarshalFromFunc(readQuantity),
)))

func readTime(d *jsontext.Decoder, out *metav1.Time) (err error) {
	out.Time, err = timeFrom(d)
	return err
}

func readMicroTime(d *jsontext.Decoder, out *metav1.MicroTime) (err error) {
	out.Time, err = timeFrom(d)
	return err
}

// timeFrom takes a time of the API; null is none.
func timeFrom(d *jsontext.Decoder) (time.Time, error) {
	t, err := d.ReadToken()
	switch {
	case err != nil:
		return time.Time{}, err
	case t.Kind() == 'n':
		return time.Time{}, nil
	case t.Kind() != '"':
		return time.Time{}, fmt.Errorf("want a time, got %s", jsonwords.Kind(t.Kind()))
	}
	return parseTime(t.String())
}

// parseTime takes RFC 3339.
func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is no time as RFC 3339 has it, 2026-01-02T15:04:05Z", text)
	}
	return at, nil
}

func readQuantity(d *jsontext.Decoder, out *resource.Quantity) error {
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch t.Kind() {
	case 'n':
		*out = resource.Quantity{}
		return nil
	case '"', '0':
		*out, err = podjson.ParseQuantity(t.String())
		return err
	}
	return fmt.Errorf("want a quantity, got %s", jsonwords.Kind(t.Kind()))
}
