"""Containers and texts in C++ of our own, for programs of tests: they are read in a sixth of the time of the library's.

What is made of them is what is made of a library: templates in every object that uses them, calls that pay and calls
that do not, destructors and the tables to unwind to them. Tests of what real headers bring use those.
"""

CONTAINERS = """
template <class T> struct List {
  T* first = nullptr;
  int count = 0, room = 0;
  List() = default;
  List(const List& other) { for (const T& one : other) add(one); }
  List(List&& other) { swap(other); }
  List& operator=(List other) { swap(other); return *this; }
  ~List() { delete[] first; }
  T* begin() const { return first; }
  T* end() const { return first + count; }
  void swap(List& other) {
    T* place = first;
    int number = count, size = room;
    first = other.first, count = other.count, room = other.room;
    other.first = place, other.count = number, other.room = size;
  }
  T& add(const T& value) {
    if (count == room) {
      T* more = new T[room = room * 2 + 4];
      for (int index = 0; index < count; ++index) more[index] = static_cast<T&&>(first[index]);
      delete[] first;
      first = more;
    }
    return first[count++] = value;
  }
};
struct Text {
  List<char> letters;
  Text(const char* text = "") { for (; *text; ++text) letters.add(*text); }
  Text(int number) {
    if (number < 0) { letters.add('-'); number = -number; }
    if (number > 9) letters = Text(number / 10).letters;
    letters.add('0' + number % 10);
  }
  Text& operator+=(char letter) { letters.add(letter); return *this; }
  Text& operator+=(const Text& other) { for (char letter : other.letters) letters.add(letter); return *this; }
  bool operator==(const Text& other) const {
    if (letters.count != other.letters.count) return false;
    for (int index = 0; index < letters.count; ++index)
      if (letters.first[index] != other.letters.first[index]) return false;
    return true;
  }
};
inline Text operator+(Text text, const Text& other) { return text += other; }
template <class Value> struct Rows {
  struct Row { Text name; Value value; };
  List<Row> rows;
  Value& operator[](const Text& name) {
    for (Row& row : rows) if (row.name == name) return row.value;
    return rows.add({name, Value()}).value;
  }
};
extern "C" int puts(const char*);
inline int show(Text text) { text.letters.add(0); return puts(text.letters.first); }
"""
