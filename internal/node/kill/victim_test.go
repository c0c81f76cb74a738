package kill

import (
	"reflect"
	"testing"
)

// maxFields bounds the fields of a victim and of each of its parts.
const maxFields = 15

// A victim consists of parts, and no part reaches the victim.
func TestVictimIsMadeOfParts(t *testing.T) {
	victim := reflect.TypeFor[Victim]()
	if n := victim.NumField(); n > maxFields {
		t.Errorf("Victim has %d fields, want at most %d", n, maxFields)
	}
	for i := range victim.NumField() {
		part := victim.Field(i)
		if part.Anonymous {
			t.Errorf("the victim embeds %v, want a named field", part.Type)
		}
		if part.Type.Kind() != reflect.Struct || part.Type.PkgPath() != victim.PkgPath() {
			continue
		}
		if n := part.Type.NumField(); n > maxFields {
			t.Errorf("part %s has %d fields, want at most %d", part.Name, n, maxFields)
		}
		for j := range part.Type.NumField() {
			if f := part.Type.Field(j); f.Type == reflect.PointerTo(victim) {
				t.Errorf("%s.%s points back to the victim", part.Name, f.Name)
			}
		}
	}
}
