#include "profile/prior_texts.h"

namespace shale {
namespace {

constexpr PriorText kTexts[] = {
    {"lighthouse",
     ContextKind::kProse,
     R"(The lighthouse on Vell Point was built between 1871 and 1874, after the loss of the grain ship Harriet Moss had
cost the town of Orrin forty-one of its people. The first plans, drawn by the engineer Tobias Lund, asked for a
tower of granite; the quarry could not deliver in time, and brick was used above the second floor. The change saved
money but let in the damp, and the keepers complained of it for as long as there were keepers.

The lamp burned whale oil at first, then paraffin, and from 1911 a vapour burner that could be seen at nineteen sea
miles. Its lens, made in Lyon, weighed almost three tons and floated in a trough of mercury, so that a child could
turn it with one hand. Every four hours somebody had to climb ninety-six steps and wind up the weight that drove
it.

Life on the point was lonely. The nearest farm lay two hours away on foot, and from November to March the causeway
was often under water. Ellen Marsh, who kept the light with her father and after his death alone, wrote down the
weather every day for thirty-three years. Her notebooks, found in a biscuit tin in 1968, are today the longest
record of wind and temperature on that coast, and have been used by three universities.

In 1957 the light was connected to the mains, and the last keeper left two years later. The town wanted to pull the
tower down, because bricks had begun to fall from the gallery. A club of amateur radio operators bought it for a
single pound, repaired the walls with lime instead of cement, and still opens it to visitors on the first Sunday of
each month from May to September.)",
     {"Why was the lighthouse on Vell Point built?",
      "What did Ellen Marsh write down, and what is it used for today?"}},

    {"inventory code",
     ContextKind::kCode,
     R"(from dataclasses import dataclass, field
import csv
import logging

log = logging.getLogger("inventory")


class OutOfStock(Exception):
    """Raised when more units are asked for than the warehouse holds."""


@dataclass
class Item:
    sku: str
    name: str
    units: int = 0
    reserved: int = 0
    price_cents: int = 0

    @property
    def available(self) -> int:
        return self.units - self.reserved


@dataclass
class Warehouse:
    city: str
    items: dict[str, Item] = field(default_factory=dict)

    def load(self, path: str) -> int:
        """Reads rows of sku,name,units,price and returns how many were read."""
        rows = 0
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                self.items[row["sku"]] = Item(
                    sku=row["sku"],
                    name=row["name"].strip(),
                    units=int(row["units"]),
                    price_cents=round(float(row["price"]) * 100),
                )
                rows += 1
        log.info("%s: %d rows from %s", self.city, rows, path)
        return rows

    def reserve(self, sku: str, count: int) -> Item:
        item = self.items[sku]
        if item.available < count:
            raise OutOfStock(f"{sku}: {count} wanted, {item.available} left")
        item.reserved += count
        return item

    def ship(self, sku: str, count: int) -> None:
        item = self.items[sku]
        item.reserved -= count
        item.units -= count
        if item.units == 0:
            log.warning("%s: %s is sold out", self.city, item.name)

    def value(self) -> float:
        return sum(i.units * i.price_cents for i in self.items.values()) / 100


def cheapest(warehouses: list[Warehouse], sku: str) -> Warehouse | None:
    holding = [w for w in warehouses if sku in w.items and w.items[sku].available > 0]
    return min(holding, key=lambda w: w.items[sku].price_cents, default=None)
)",
     {"When does reserve raise OutOfStock?", "What does the function cheapest return?"}},

    {"bridge meeting",
     ContextKind::kDialogue,
     R"(Dana: Thanks for coming in early. Before the council sits at nine we need one story about the bridge.
Omar: The short one is that it holds. The long one is that two of the eight bearings on the east side have seized.
Dana: What does seized mean for somebody who drives across?
Omar: Nothing today. When it gets hot the deck wants to grow by four centimetres, and it cannot move there, so the
pier takes the force instead.
Priya: We put gauges on that pier in March. The worst day was the ninth of July, at seventy percent of what it may
carry.
Dana: So there is room.
Priya: There is room for a normal summer. I would not promise it for a week at forty degrees.
Lewis: Can I ask about money? The budget has two hundred thousand for the whole of next year.
Omar: New bearings are ninety thousand for the pair, with the jacks and the crane. Closing one lane for three weeks
is another thirty.
Lewis: And if we wait until the year after?
Omar: Then it is still a hundred and twenty, unless the pier cracks, and then it is two million.
Dana: When would you do it?
Omar: In October. The river is low, and the school buses are back on the northern route by then.
Priya: I can have the tender out by the end of May if I hear yes this week.
Dana: Lewis, can the council hear that it is within budget?
Lewis: Within budget, with eighty left for the potholes on Mill Road. They will ask about the potholes.
Dana: Then you take the potholes, and Omar takes the bearings. Priya, please bring one picture of the gauge, no
tables.
Priya: One picture. I will print it large.)",
     {"What will the new bearings cost, and when does Omar want to do the work?",
      "What does Dana ask Priya to bring?"}},

    {"depot register",
     ContextKind::kRecords,
     R"(Register of lockers, depot 7, as of 14 March.
Locker 1041 holds the parcel QX-7713 for Ines Calder; its code is 58210 and it expires on 21 March.
Locker 1042 holds the parcel RB-0926 for Tom Achebe; its code is 90417 and it expires on 19 March.
Locker 1043 is empty; its code is 00000 and it was cleaned on 12 March.
Locker 1044 holds the parcel KL-5502 for Mara Voss; its code is 31765 and it expires on 24 March.
Locker 1045 holds the parcel ZT-1189 for Piet de Boer; its code is 77304 and it expires on 18 March.
Locker 1046 holds the parcel QX-7720 for June Okafor; its code is 46098 and it expires on 22 March.
Locker 1047 is out of order since 2 March; ticket 6631 was opened with the maker.
Locker 1048 holds the parcel HD-4470 for Sam Whitlow; its code is 15932 and it expires on 20 March.
Locker 1049 holds the parcel RB-0931 for Lena Brandt; its code is 82651 and it expires on 25 March.
Locker 1050 holds the parcel KL-5519 for Yusuf Demir; its code is 60377 and it expires on 17 March.
Locker 1051 is empty; its code is 00000 and it was cleaned on 13 March.
Locker 1052 holds the parcel ZT-1204 for Ana Ruiz; its code is 29846 and it expires on 23 March.
Locker 1053 holds the parcel HD-4488 for Olga Petrova; its code is 73518 and it expires on 26 March.
Totals: 13 lockers, 10 parcels, 2 empty, 1 out of order; next collection on 16 March at 06:30.)",
     {"What is the code of the locker that holds the parcel KL-5502?",
      "Which locker is out of order, and since when?"}},

    {"gärtnerei",
     ContextKind::kLanguage,
     R"(Die Gärtnerei am Stadtrand von Lindau wurde 1932 von Karl und Hedwig Ammann gegründet. Am Anfang gab es nur zwei
Gewächshäuser, die mit Kohle beheizt wurden, und ein Feld, auf dem Kohl und Rüben wuchsen. Nach dem Krieg
verkauften die Ammanns vor allem Setzlinge, denn viele Familien legten damals eigene Gärten an. In guten Jahren
standen die Kunden schon um sechs Uhr morgens vor dem Tor.

Die Tochter Ruth übernahm den Betrieb im Jahr 1964. Sie war die erste in der Gegend, die Tomaten ohne Gift zog, und
wurde dafür zunächst ausgelacht. Statt Schädlinge zu spritzen, setzte sie Marienkäfer und Schlupfwespen aus, die
sie in Holland bestellte. Nach drei Jahren war die Ernte größer als zuvor, und zwei Nachbarn machten es ihr nach.

Ein Hagelsturm im August 1978 zerstörte in zwanzig Minuten fast alle Scheiben. Die Versicherung bezahlte nur die
Hälfte des Schadens. Ruth ließ die Dächer nicht mehr aus Glas bauen, sondern aus doppelten Kunststoffplatten, die
billiger waren und im Winter ein Drittel der Wärme sparten.

Heute führt ihr Enkel Jonas die Gärtnerei. Er heizt mit Holzschnitzeln aus dem Gemeindewald, sammelt das
Regenwasser in einem alten Löschteich und bietet jeden Samstag Kurse an, in denen Kinder lernen, wie man Kräuter
vermehrt. Kohl baut er nicht mehr an, aber die Rüben seines Urgroßvaters gibt es noch: Sie heißen Lindauer Rote und
stehen auf der Liste der bedrohten Sorten.)",
     {"Was tat Ruth Ammann gegen die Schädlinge?", "Womit heizt Jonas die Gärtnerei heute?"}},

    {"bread",
     ContextKind::kProse,
     R"(A sourdough loaf asks for patience more than for skill. Begin two days before you want to eat it. On the first
evening mix fifty grams of ripe starter with a hundred grams of rye flour and a hundred grams of water, cover the
bowl, and leave it where it is neither cold nor hot; by the morning it should smell of apples and have doubled.

In the morning stir four hundred grams of wheat flour and two hundred and sixty grams of water together until no
dry flour is left, and let the mixture stand for an hour. This rest, which bakers call the autolyse, makes the
dough stretch without kneading. Then work in the ripe rye dough and ten grams of salt. The dough will be sticky;
wet your hands rather than adding flour.

Over the next three hours fold it four times, lifting each side and laying it over the middle. After the last fold
shape a ball, put it upside down into a floured basket, and place it in the refrigerator overnight. The cold slows
the yeast but not the bacteria that give the sour taste, so that a longer night makes a stronger flavour.

Heat the oven to two hundred and fifty degrees with a heavy pot inside. Turn the loaf into the hot pot, cut it once
across with a sharp blade, and close the lid. After twenty-five minutes take off the lid and lower the heat to two
hundred and twenty; the bread is done when it sounds hollow if you knock on its base, after another twenty minutes
or so. The hardest part comes last: do not cut it for two hours, because the crumb is still setting, and a warm
loaf that is cut too early turns gummy.)",
     {"What is the autolyse good for?", "How can you tell that the bread is done?"}},

    {"ring buffer code",
     ContextKind::kCode,
     R"(#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>

namespace audio {

// One thread pushes, another pops. Capacity must be a power of two; one slot stays empty.
template <class T, std::size_t Capacity>
class RingBuffer {
  static_assert((Capacity & (Capacity - 1)) == 0, "a power of two");

 public:
  bool push(T value) {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    const std::size_t next = (head + 1) & kMask;
    if (next == tail_.load(std::memory_order_acquire)) {
      ++overruns_;
      return false;
    }
    slots_[head] = std::move(value);
    head_.store(next, std::memory_order_release);
    return true;
  }

  std::optional<T> pop() {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail == head_.load(std::memory_order_acquire)) return std::nullopt;
    T value = std::move(slots_[tail]);
    tail_.store((tail + 1) & kMask, std::memory_order_release);
    return value;
  }

  std::size_t size() const {
    const std::size_t head = head_.load(std::memory_order_acquire);
    const std::size_t tail = tail_.load(std::memory_order_acquire);
    return (head - tail) & kMask;
  }

  std::size_t overruns() const { return overruns_; }

 private:
  static constexpr std::size_t kMask = Capacity - 1;
  std::array<T, Capacity> slots_{};
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
  std::size_t overruns_ = 0;
};

}  // namespace audio
)",
     {"What happens when push is called on a full buffer?", "Why is the capacity required to be a power of two?"}},

    {"beekeeper interview",
     ContextKind::kDialogue,
     R"(Interviewer: You have kept bees for fifty years. How did it begin?
Mrs. Hale: With a swarm in our chimney. I was eleven, and my mother gave me a box and told me to get rid of them. I
kept the box.
Interviewer: Were you stung?
Mrs. Hale: Fourteen times. My brother, who only watched, was stung fifteen times. That is how I knew they liked me.
Interviewer: How many hives do you have today?
Mrs. Hale: Thirty-two in summer. I never go into the winter with more than twenty-five, because that is what I can
feed.
Interviewer: What has changed most in that time?
Mrs. Hale: The mites. Before 1992 we had none. That year I lost nineteen hives out of twenty, and I sold my
extractor and cried. A man in Dorset sent me a queen from the one line that groomed itself. All my bees descend
from her.
Interviewer: You named her, I believe.
Mrs. Hale: Matilda. She lived four years, which is old for a queen.
Interviewer: What would you tell somebody who wants to begin?
Mrs. Hale: Begin with two hives, not one. With one you never know whether it is the bees or you. And buy the suit
before the smoker.
Interviewer: What do you do with the honey?
Mrs. Hale: The heather honey goes to the hospital shop. The lime honey I keep. The rest pays for the sugar and the
petrol, and in a bad year it does not.
Interviewer: Do you still get stung?
Mrs. Hale: On the ninth of May every year, it seems. That is when I move the hives to the orchards, and they do not
like the van any more than I do.)",
     {"What happened to Mrs. Hale's hives in 1992?", "Why does she advise to begin with two hives?"}},

    {"sensor log",
     ContextKind::kRecords,
     R"({"id": "pump-03", "time": "06:00", "flow": 412, "pressure": 3.1, "state": "ok", "key": "b7e1"}
{"id": "pump-04", "time": "06:00", "flow": 398, "pressure": 3.0, "state": "ok", "key": "09ca"}
{"id": "pump-05", "time": "06:00", "flow": 0, "pressure": 0.2, "state": "off", "key": "f4d8"}
pump-03 06:15 flow 409 pressure 3.1 ok key 5a20
pump-04 06:15 flow 371 pressure 3.4 ok key c6b3
pump-05 06:15 flow 0 pressure 0.2 off key 71ee
pump-03 06:30 flow 415 pressure 3.1 ok key 2d94
pump-04 06:30 flow 342 pressure 3.9 warning key e85f
pump-05 06:30 flow 0 pressure 0.2 off key 3bb7
pump-03 06:45 flow 420 pressure 3.2 ok key 9c01
pump-04 06:45 flow 288 pressure 4.6 warning key 46da
pump-05 06:45 flow 120 pressure 1.4 starting key a352
pump-03 07:00 flow 433 pressure 3.2 ok key 1f7c
pump-04 07:00 flow 0 pressure 0.1 stopped key d06e
pump-05 07:00 flow 395 pressure 3.0 ok key 88b4
pump-03 07:15 flow 428 pressure 3.2 ok key 64f9
pump-04 07:15 flow 0 pressure 0.1 stopped key 0e3d
pump-05 07:15 flow 401 pressure 3.1 ok key b91a
Note 114: pump-04 was stopped at 06:58 by operator 27; filter 9 was found blocked; work order 20553 was opened.
Note 115: pump-05 was started at 06:41 by operator 27; valve 12 was opened by hand to 60 percent.
Note 116: pump-03 carries load alone until 07:05; alarm limit 4.8 was not reached.)",
     {"Which key did pump-04 report at 06:45?", "Which work order was opened, and why?"}},

    {"el faro",
     ContextKind::kLanguage,
     R"(El mercado de San Telmo abrió sus puertas en 1897, cuando el barrio crecía con la llegada de familias italianas y
gallegas. El arquitecto Juan Buschiazzo diseñó una estructura de hierro y vidrio que dejaba entrar la luz durante
todo el día, algo poco común en los mercados de entonces. En el centro había una fuente donde los vendedores
lavaban la verdura, y alrededor se ordenaban los puestos: la carne al norte, el pescado al sur, las frutas junto a
la entrada.

Durante la crisis de los años treinta, muchos puestos cerraron. Una cooperativa de mujeres, dirigida por Amalia
Ferro, alquiló los locales vacíos y empezó a vender sopa por cinco centavos. La cocina de la cooperativa funcionó
once años y llegó a servir ochocientos platos por día. De aquella época queda una olla de cobre que todavía cuelga
sobre el puesto número cuarenta.

En 1981 la ciudad quiso convertir el edificio en un estacionamiento. Los vecinos juntaron doce mil firmas y
lograron que fuera declarado monumento. La restauración tardó seis años, porque hubo que fabricar de nuevo casi
todas las columnas, cuyos moldes se habían perdido.

Hoy conviven en el mercado las carnicerías de siempre con cafés, librerías y anticuarios. Los domingos, cuando la
feria ocupa las calles, pasan por allí más de veinte mil personas. Los vendedores más antiguos se quejan del ruido
y de los alquileres, pero ninguno quiere irse: dicen que en ningún otro lugar se escucha la lluvia como bajo aquel
techo de vidrio.)",
     {"¿Quién dirigió la cooperativa de mujeres y qué vendía?", "¿Por qué tardó seis años la restauración?"}},
};

}  // namespace

std::span<const PriorText> prior_texts() { return kTexts; }

}  // namespace shale
