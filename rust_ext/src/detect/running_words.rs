//! Words beside names in running text, folded, in English, French, Spanish and German; and those that are no names.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A name follows: "named".
pub const NAMING: u32 = 1;
/// "name", before a copula.
pub const NAME: u32 = 1 << 1;
pub const COPULA: u32 = 1 << 2;
/// Relatives, friends, and trades that stand before a name.
pub const KIN: u32 = 1 << 3;
/// "his", before kin.
pub const OWNER: u32 = 1 << 4;
pub const GREETING: u32 = 1 << 5;
/// Only an individual does it.
pub const ACT: u32 = 1 << 6;
pub const ARTICLE: u32 = 1 << 7;
/// Only an individual is one.
pub const HUMAN: u32 = 1 << 8;
pub const AGENT: u32 = 1 << 9;
/// Behind the name of a place or a firm.
pub const PLACE: u32 = 1 << 10;
pub const AND: u32 = 1 << 11;
/// Ends a letter.
pub const CLOSING: u32 = 1 << 12;
/// Has a capital and is nobody.
pub const NO_NAME: u32 = 1 << 13;
/// Is nobody where the corpus writes it small too: in another language it may be a name ("Ella").
pub const FUNCTION: u32 = 1 << 14;
/// A name follows an object: "call her Anna".
pub const CALL: u32 = 1 << 15;
pub const OBJECT: u32 = 1 << 16;
/// Behind kin: "su hermana mayor Ana".
pub const ELDER: u32 = 1 << 18;
/// Only an individual holds one; with a capital, a name may follow.
pub const OFFICE: u32 = 1 << 19;
/// Trades that are cut short to capitals: a name follows.
pub const ROLE: u32 = 1 << 20;
/// Before who says it: "I am well," says Roy.
pub const SAY: u32 = 1 << 17;

/// With "of" or "de" behind them they are of somebody, and of no place.
pub const SPOUSES: [&str; 8] = ["wife", "husband", "widow", "widower", "veuve", "veuf", "viuda", "viudo"];

const LISTS: &[(u32, &str)] = &[
    (
        NAMING,
        "named nomme nommee prenomme prenommee appelle llamado llamada llama llamo llaman namens genannt heisst heisse",
    ),
    (NAME, "name names surname nom prenom nombre apellido nachname vorname"),
    (COPULA, "is was est etait es era ist war"),
    (
        KIN,
        "wife husband son daughter brother sister mother father mom mum dad uncle aunt cousin grandmother grandfather grandson \
         granddaughter niece nephew partner fiance fiancee girlfriend boyfriend spouse stepmother stepfather stepson stepdaughter friend \
         kid child baby twin grandma grandpa granddad granny nan mommy daddy sib sibling dtr dau gdtr hubby widow widower flatmate housemate boss parents sons daughters brothers sisters children kids twins \
         caregiver caretaker roommate neighbor neighbour colleague coworker guardian surgeon physician midwife therapist psychiatrist \
         femme mari epouse epoux fils fille frere soeur mere pere enfant bebe parents filles freres soeurs enfants jumeaux oncle tante cousine compagnon compagne conjoint conjointe ami amie \
         voisin voisine collegue maman gendre bru pote kine psychologue infirmiere infirmier chirurgien chirurgienne medecin \
         esposa esposo marido mujer hijo hija hermano hermana madre padre padres hijos hijas hermanos hermanas gemelos tio tia primo prima abuelo abuela pareja novio novia amigo \
         amiga cunado cunada suegra suegro nuera yerno vecina vecino bisabuela bisabuelo nieto nieta sobrino sobrina enfermera enfermero psicologa psicologo \
         ehefrau ehemann sohn tochter kind eltern sohne kinder geschwister zwillinge bruder schwester mutter vater onkel schwager schwagerin freund freundin partnerin lebensgefahrte \
         lebensgefahrtin lebenspartner lebenspartnerin ehegatte ehegattin gattin gatte schwiegersohn schwiegertochter oma opa nichte neffe nachbar nachbarin enkel enkelin kollege kollegin",
    ),
    (
        OWNER,
        "his her my their our your su sus mi sa son ses mon ma notre leur ihr ihre ihrem ihren sein seine mein meine",
    ),
    (
        GREETING,
        "dear hello hi hey thanks bonjour hola hallo liebe lieber cher chere estimado estimada querido querida dearest",
    ),
    (
        ACT,
        "says said states stated reports reported denies denied complains complained tells told asks asked explains explained lives lived \
         smokes smoked drinks admits endorses endorsed describes described recalls recalled mentions mentioned feels felt agrees agreed \
         understands verbalizes verbalized thinks wants believes remembers wrote writes works worked retired died presents presented \
         dit declare rapporte signale nie explique vit habite travaille consulte souhaite pense raconte \
         dice dijo presenta presento refiere refirio niega nego comenta comento explica vive trabaja acude acudio cuenta fuma \
         sagt sagte berichtet berichtete klagt klagte lebt wohnt verneint verneinte arbeitet erzahlt raucht",
    ),
    (ARTICLE, "a an un una une ein eine"),
    (
        HUMAN,
        "man woman male female patient person lady gentleman boy girl child infant toddler teenager year years yo y month months \
         homme femme personne patiente enfant garcon fille nourrisson ans mois dame monsieur \
         hombre mujer persona varon paciente nino nina anos meses \
         mann frau patientin junge madchen jahrige jahriger jahre monate",
    ),
    (AGENT, "by par por von"),
    (
        PLACE,
        "hospital hospitals clinic clinics center centre street road avenue lane drive boulevard university college inc ltd llc gmbh ag \
         corp corporation company county city town school church park airport hotel foundation institute department unit ward medical \
         laboratory laboratories pharma pharmaceuticals group bank insurance press journal association society klinik klinikum \
         krankenhaus universitat stiftung strasse clinique hopital universite rue clinica universidad calle fundacion",
    ),
    (AND, "and y e et und o or u ou oder"),
    (
        CLOSING,
        "regards sincerely yours signed cordialement salutations atentamente saludos grussen grusse gruss cheers respectfully faithfully",
    ),
    (
        NO_NAME,
        "mr mrs ms miss dr sir i'm monday tuesday wednesday thursday friday saturday sunday lundi mardi \
         mercredi jeudi vendredi samedi dimanche lunes martes miercoles jueves viernes sabado domingo montag dienstag mittwoch donnerstag \
         freitag samstag sonntag american english french spanish german italian chinese african hispanic caucasian asian european mexican \
         british irish russian indian japanese christmas easter thanksgiving god medicare medicaid covid \
         patient patients paciente patientin doctor nurse hospital please thank okay doc everyone everybody folks guys team today yesterday tomorrow \
         policia police polizei guardia bomberos samu ambulance municipal nacional civil \
         information status code summary discharge admission address phone history diagnosis diagnoses medication medications allergies \
         problem problems procedure procedures assessment examination exam results appointment appointments instructions directive \
         directives language insurance signature statut adresse telephone antecedents motif diagnostic traitement resultats \
         informacion codigo direccion telefono diagnostico antecedentes tratamiento motivo exploracion alergias resultados \
         anamnese diagnose befund therapie aufnahme entlassung adresse telefon allergien",
    ),
    (
        FUNCTION,
        "he she it they we you i this that these those there here who what when where why how no yes not and or but if then so as at in on of \
         for from with to by the his her its \
         ella ellos ellas usted yo nosotros il elle ils elles nous vous je on er sie es wir ihr ich man",
    ),
    (ELDER, "mayor mayores menor menores pequeno pequena gemelo gemela aine ainee cadet cadette jumeau jumelle"),
    (
        OFFICE,
        "ambassador inspector attorney embajador embajadora inspectora ambassadeur ambassadrice inspecteur botschafter inspektor",
    ),
    (ROLE, "rn sw cna lpn lvn crna iade ibode ide idel tcae due tes ats nfs mtra otr"),
    (CALL, "call calls called name names named nickname nicknamed"),
    (OBJECT, "me him her it them us"),
    (
        SAY,
        "says said asks asked replies replied answers answered adds added dit demande repond ajoute dice dijo pregunta responde anade sagt \
         sagte fragt fragte antwortet",
    ),
];

static KINDS: LazyLock<HashMap<&'static str, u32, FixedState>> = LazyLock::new(|| {
    let mut kinds: HashMap<&str, u32, FixedState> = HashMap::default();
    for (list, words) in LISTS {
        for word in words.split_ascii_whitespace() {
            *kinds.entry(word).or_default() |= list;
        }
    }
    kinds
});

/// Words of medicine and adverbs, which a sentence may begin with and a corpus may write with a capital only.
const ENDINGS: &[&str] = &[
    "logy", "logie", "logia", "graphy", "graphie", "grafia", "iatrics", "iatrie", "iatria", "surgery", "therapy",
    "mente", "ically", "ously", "ingly", "itis", "osis", "ectomy", "scopy", "larly", "inally", "ionally", "erally",
    "tually", "tedly", "kedly", "iently", "rently", "uently", "dently", "cently", "tantly", "cantly", "nantly",
    "ately", "fully", "tively", "sively", "amment", "emment", "ivement", "usement", "ellement",
];

/// Whether a folded word ends as names do not.
pub fn ends_as_no_name(word: &str) -> bool {
    ENDINGS.iter().any(|ending| word.len() > ending.len() + 1 && word.ends_with(ending))
}

/// The lists a folded word is in; 0 for none.
#[inline]
pub fn kind(word: &str) -> u32 {
    KINDS.get(word).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::fold::fold;
    use crate::text::surface::Surface;

    #[test]
    fn words_are_folded() {
        for (_, words) in LISTS {
            for word in words.split_ascii_whitespace() {
                assert_eq!(fold(word, Surface::Fold).text, word);
            }
        }
        assert_eq!(kind("wife"), KIN);
        assert_eq!(kind("son"), KIN | OWNER); // English and French
        assert_eq!(kind("anna"), 0);
    }
}
