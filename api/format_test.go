package api

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The formats are a promise to other programs. Each file in testdata holds a value with no field
// set and one with all fields set. Add new fields there by hand; any other change breaks readers.
func TestFormatsAreStable(t *testing.T) {
	for name, x := range map[string]any{"state": &State{}, "record": &Record{}, "admit": &AdmitAnswer{}} {
		zero, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		fill(reflect.ValueOf(x).Elem(), &n)
		full, err := json.MarshalIndent(x, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), fmt.Sprintf("%s\n%s\n", zero, full)); diff != "" {
			t.Errorf("format of %s changed (-want +got):\n%s", name, diff)
		}
		decoded := reflect.New(reflect.TypeOf(x).Elem())
		if err := json.Unmarshal(full, decoded.Interface()); err != nil || !cmp.Equal(x, decoded.Interface()) {
			t.Errorf("%s changed by encoding and decoding, error %v:\n%s", name, err, cmp.Diff(x, decoded.Interface()))
		}
	}
}

// fill sets every field to a reproducible value other than zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		if t, ok := v.Addr().Interface().(*time.Time); ok {
			*t = time.Unix(int64(1700000000+*n), 0).UTC()
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		of := reflect.New(v.Type().Elem()).Elem()
		if of.Kind() == reflect.String {
			of.SetString(fmt.Sprint("v", *n))
		} else {
			fill(of, n)
		}
		v.SetMapIndex(reflect.ValueOf(fmt.Sprint("k", *n)), of)
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	default:
		panic(v.Type())
	}
}
