//! Words of names, addresses, numbers and ages that stay where the rest is replaced: shared by all, they identify no individual.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::values::folded;

/// What kind of name a span holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Person,
    Place,
    Organization,
    Phone,
    Age,
}

/// Particles of names, which stay unless they end the name: there they are the name.
const PARTICLES: &str = "de della der des di dos da el la las los of st von und y ibn";
/// Particles and titles that are a name when they have a capital.
const SMALL_PARTICLES: &str = "al ben bin das del do don dona du le the van";
const TITLES: &str = "mr mrs ms miss dr dra prof professor sr sra srta jr ii iii iv md phd rn np dds msc bsc mme mlle \
    monsieur madame docteur professeur doctor doctora herr frau";
const OF_PLACES: &str = "and at of the de del der des di do dos da du el en la las le les los l d y et und von am an im \
    in sur sous street str road rd avenue ave lane ln drive boulevard blvd court place plaza square way highway \
    route rue impasse allee allees chemin quai cours calle avenida avda carretera paseo camino strasse weg platz allee \
    north south east west apt apartment suite unit floor room bp cedex po box saint sainte san santa bis ter";
const OF_ORGANIZATIONS: &str = "hospital hospitals clinic clinics center centre medical health healthcare university \
    college school institute department service services unit ward general regional memorial community county city \
    national care home nursing laboratory pharmacy foundation group association company inc ltd llc hopital hopitaux \
    clinique universitaire universite institut maison sante chu chr chru ch centro salud clinica universitario \
    universidad departamento servicio unidad krankenhaus klinik klinikum universitat praxis zentrum";

const OF_PHONES: &str = "tel telephone phone fax ext extension x no nr num numero number mobile mob cell cellular pager \
    beeper home work office direct desk bureau domicile portable poste fixe telefono telefon telf tfno tlf tfn movil fijo \
    handy durchwahl int and or et ou y o und oder";
const OF_AGES: &str = "year years yr yrs y yo o old month months mo mos m week weeks wk wks w day days d hour hours hr hrs h \
    aged age f s th st nd rd and a of in the to early mid late half an ans annee annees mois semaine semaines sem jour jours \
    j de et demi ano anos mes meses semana semanas dia dias hora horas edad medio media jahr jahre jahren jahrig jahrige \
    jahriger monat monate monaten woche wochen tag tage tagen alt und";

const IN_PARTICLES: u8 = 1;
const IN_SMALL_PARTICLES: u8 = 2;
const IN_TITLES: u8 = 4;
const IN_PLACES: u8 = 8;
const IN_ORGANIZATIONS: u8 = 16;
const IN_PHONES: u8 = 32;
const IN_AGES: u8 = 64;

/// Which of these lists a word is on.
static LISTS_OF: LazyLock<HashMap<&'static str, u8>> = LazyLock::new(|| {
    let lists = [
        (PARTICLES, IN_PARTICLES),
        (SMALL_PARTICLES, IN_SMALL_PARTICLES),
        (TITLES, IN_TITLES),
        (OF_PLACES, IN_PLACES),
        (OF_ORGANIZATIONS, IN_ORGANIZATIONS),
        (OF_PHONES, IN_PHONES),
        (OF_AGES, IN_AGES),
    ];
    let mut lists_of = HashMap::new();
    for (words, list) in lists {
        for word in words.split_ascii_whitespace() {
            *lists_of.entry(word).or_insert(0) |= list;
        }
    }
    lists_of
});

/// `last`: no word of the name comes after it.
pub fn is_kept(word: &str, scope: Scope, last: bool) -> bool {
    let kept = match scope {
        Scope::Person if last => IN_TITLES,
        Scope::Person if word.starts_with(char::is_uppercase) => IN_TITLES | IN_PARTICLES,
        Scope::Person => IN_TITLES | IN_PARTICLES | IN_SMALL_PARTICLES,
        Scope::Place => IN_PLACES,
        Scope::Organization => IN_ORGANIZATIONS | IN_PLACES,
        Scope::Phone => IN_PHONES,
        Scope::Age => IN_AGES,
    };
    // A single letter of a person is an initial.
    let lists = LISTS_OF.get(folded(word).as_ref()).copied().unwrap_or(0);
    lists & kept != 0 && (word.len() > 1 || scope != Scope::Person)
}
